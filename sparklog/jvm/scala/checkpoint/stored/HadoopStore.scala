package sparklog.checkpoint.stored

import java.io.{FileNotFoundException, IOException}
import java.nio.file.{
  FileAlreadyExistsException => NameExists, Files, FileVisitResult, NoSuchFileException,
  Path => LocalPath, SimpleFileVisitor
}
import java.nio.file.attribute.BasicFileAttributes

import scala.jdk.CollectionConverters._

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{
  FileAlreadyExistsException, FileContext, FileStatus, FileSystem, Options, Path
}

import sparklog.checkpoint.{Durable, Uninterruptible}

/**
 * The objects below `root`, through Hadoop's connector for the file system. What differs between
 * file systems is how an object is created atomically.
 */
sealed abstract class HadoopStore(root: Path, conf: Configuration) extends ObjectStore {
  protected val fs: FileSystem = root.getFileSystem(conf)

  protected def path(name: String): Path = new Path(root, name)

  override def put(name: String, content: Array[Byte]): Unit = {
    val out = fs.create(path(name), true)
    try {
      out.write(content)
      if (out.hasCapability("hsync")) out.hsync()
    } finally out.close()
  }

  override def get(name: String): Option[Array[Byte]] = read(name, None)

  override def get(listed: ObjectInfo): Option[Array[Byte]] = read(listed.name, listed.status)

  /** Read an object. Without its status, S3A asks for that first, by a request of its own. */
  private def read(name: String, status: Option[FileStatus]): Option[Array[Byte]] =
    try {
      val in = fs.openFile(path(name)).opt("fs.option.openfile.read.policy", "whole-file")
        .withFileStatus(status.orNull).build().get()
      try Some(in.readAllBytes())
      finally in.close()
    } catch HadoopStore.missing

  override def get(name: String, position: Long, bytes: Int): Option[Array[Byte]] =
    try {
      // With a length the connectors don't ask for the size of the object first.
      val in = fs.openFile(path(name)).optLong("fs.option.openfile.length", position + bytes)
        .opt("fs.option.openfile.read.policy", "random").build().get()
      try {
        val content = new Array[Byte](bytes)
        in.readFully(position, content)
        Some(content)
      } finally in.close()
    } catch HadoopStore.missing

  override def list(directory: String): Seq[ObjectInfo] = {
    val base = root.toUri.getPath.stripSuffix("/") + "/"
    val found = Seq.newBuilder[ObjectInfo]
    try {
      val files = fs.listFiles(path(directory), true)
      while (files.hasNext) {
        val file: FileStatus = files.next()
        val name = file.getPath.toUri.getPath.stripPrefix(base)
        found += ObjectInfo(name, file.getLen, file.getModificationTime, Some(file))
      }
    } catch { case _: FileNotFoundException => }
    found.result()
  }

  override def delete(names: Seq[String]): Unit = if (names.nonEmpty) {
    val bulk = fs.createBulkDelete(root)
    try
      for (page <- names.grouped(bulk.pageSize())) {
        val failed = bulk.bulkDelete(page.map(path).asJava).asScala
        for (one <- failed.headOption) throw new IOException(
          s"${one.getKey} could not be deleted: ${one.getValue}")
      }
    finally bulk.close()
  }
}

object HadoopStore {
  private val Conditional = "fs.option.create.conditional.overwrite"

  /** The schemes of file systems whose atomic creation is known. */
  val Schemes: Seq[String] = Seq("s3a", "gs", "hdfs", "abfs", "abfss", "file")

  private val missing: PartialFunction[Throwable, Option[Array[Byte]]] = {
    case e: java.util.concurrent.ExecutionException
        if e.getCause.isInstanceOf[FileNotFoundException] => None
    case e: java.util.concurrent.ExecutionException if e.getCause.isInstanceOf[IOException] =>
      throw e.getCause
    case _: FileNotFoundException => None
  }

  /** Return why no objects can be created atomically at a qualified path. */
  def fault(root: Path): Option[String] = {
    val scheme = root.toUri.getScheme
    if (!Schemes.contains(scheme)) Some(
      s"it is on the file system $scheme, and objects are created atomically on " +
        Schemes.mkString(", "))
    else None
  }

  /** Return the store at a qualified path. */
  def at(root: Path, conf: Configuration): ObjectStore = root.toUri.getScheme match {
    case "s3a" => new S3(root, conf)
    case "gs" => new Exclusive(root, conf)
    case "file" => new Linking(root, conf)
    // Also for schemes with a `fault`, of which only checkpoints of Spark itself are read.
    case _ => new Renaming(root, conf)
  }

  /** S3, by a conditional PUT. */
  private final class S3(root: Path, conf: Configuration) extends HadoopStore(root, conf) {
    /** Since Hadoop 3.4.2 (HADOOP-19256). */
    private val isConditional = fs.hasPathCapability(root, HadoopStore.Conditional)

    override def create(name: String, content: Array[Byte]): Boolean =
      try {
        if (isConditional) {
          val out = fs.createFile(path(name)).overwrite(true)
            .opt("fs.s3a.create.performance", true)
            // Not `opt`: a connector that ignores it would overwrite the object.
            .must(HadoopStore.Conditional, true).build()
          out.write(content)
          out.close()
        } else new S3aConditionalPut(fs).create(path(name), content)
        true
      } catch {
        case _: FileAlreadyExistsException => false
        // The class is part of hadoop-aws, which this code is not compiled against.
        case e: IOException if e.getClass.getSimpleName == "RemoteFileChangedException" => false
      }

    override def put(name: String, content: Array[Byte]): Unit = {
      val out = fs.createFile(path(name)).overwrite(true)
        .opt("fs.s3a.create.performance", true).build()
      out.write(content)
      out.close()
    }
  }

  /** Stores whose connector publishes the object when the stream is closed, if it is new. */
  private final class Exclusive(root: Path, conf: Configuration) extends HadoopStore(root, conf) {
    /** Google's connector closes the stream of an interrupted thread, and publishes a part. */
    override def create(name: String, content: Array[Byte]): Boolean = Uninterruptible {
      try {
        val out = fs.create(path(name), false)
        out.write(content)
        out.close()
        true
      } catch {
        case _: FileAlreadyExistsException => false
        case e: IOException if isRefused(e) => false
      }
    }

    override def put(name: String, content: Array[Byte]): Unit =
      Uninterruptible(super.put(name, content))

    /** Another request has created the object since the connector looked for it: HTTP 412. */
    private def isRefused(e: IOException): Boolean =
      Iterator.iterate[Throwable](e)(_.getCause).takeWhile(_ != null).exists { cause =>
        // The class is part of the connector, which this code is not compiled against.
        cause.getClass.getSimpleName == "GoogleJsonResponseException" &&
        String.valueOf(cause.getMessage).startsWith("412")
      }
  }

  /** HDFS and Azure, whose rename fails if the name exists. */
  private final class Renaming(root: Path, conf: Configuration) extends HadoopStore(root, conf) {
    /** Lazy, because it is a client of its own, and executors create nothing. */
    private lazy val context = FileContext.getFileContext(root.toUri, conf)

    /** Spark interrupts queries that it stops, and a late request would leave a file. */
    override def create(name: String, content: Array[Byte]): Boolean = {
      val renaming = context // of this thread's user
      Uninterruptible(create(name, content, renaming))
    }

    private def create(name: String, content: Array[Byte], renaming: FileContext): Boolean = {
      val aside = new Path(path(name).getParent, Names.newIncomplete())
      var isMoved = false
      try {
        val out = fs.create(aside, false)
        try {
          out.write(content)
          out.hsync()
        } finally out.close()
        renaming.rename(aside, path(name), Options.Rename.NONE)
        isMoved = true
      } catch { case _: FileAlreadyExistsException => }
      finally if (!isMoved) fs.delete(aside, false)
      isMoved
    }
  }

  /** A disk, by a hard link: Hadoop's rename of local files may overwrite. */
  private final class Linking(root: Path, conf: Configuration) extends HadoopStore(root, conf) {
    override def create(name: String, content: Array[Byte]): Boolean = {
      val target = LocalPath.of(path(name).toUri.getPath)
      Durable.createDirectory(target.getParent)
      val aside = target.resolveSibling(Names.newIncomplete())
      Files.write(aside, content)
      Durable.sync(aside)
      try {
        Files.createLink(target, aside)
        Durable.sync(target.getParent)
        true
      } catch { case _: NameExists => false }
      finally Files.deleteIfExists(aside)
    }

    /** Not by Hadoop, which fails if a file vanishes while it asks for the file's permissions. */
    override def list(directory: String): Seq[ObjectInfo] = {
      val base = LocalPath.of(root.toUri.getPath)
      val found = Seq.newBuilder[ObjectInfo]
      val visitor = new SimpleFileVisitor[LocalPath] {
        override def visitFile(file: LocalPath, status: BasicFileAttributes): FileVisitResult = {
          val name = base.relativize(file).toString
          found += ObjectInfo(name, status.size, status.lastModifiedTime.toMillis)
          FileVisitResult.CONTINUE
        }
        override def visitFileFailed(file: LocalPath, e: IOException): FileVisitResult =
          if (e.isInstanceOf[NoSuchFileException]) FileVisitResult.CONTINUE else throw e
      }
      Files.walkFileTree(base.resolve(directory), visitor)
      found.result()
    }

    override def put(name: String, content: Array[Byte]): Unit = {
      val target = LocalPath.of(path(name).toUri.getPath)
      Durable.createDirectory(target.getParent)
      Durable.write(target, content, target.resolveSibling(Names.newIncomplete()))
    }
  }
}
