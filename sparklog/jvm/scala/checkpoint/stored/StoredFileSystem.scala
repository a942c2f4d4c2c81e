package sparklog.checkpoint.stored

import java.io.{ByteArrayOutputStream, FileNotFoundException}
import java.net.URI
import java.nio.ByteBuffer

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{
  FileAlreadyExistsException, FileStatus, FileSystem, FSDataInputStream, FSDataOutputStream, Path,
  PathFilter
}
import org.apache.hadoop.fs.permission.FsPermission
import org.apache.hadoop.util.Progressable

import sparklog.checkpoint.RecordInput
import sparklog.checkpoint.SparkFiles._

/**
 * Checkpoints in object stores as a Hadoop file system, with the scheme `sparklog-` and the scheme
 * of the real file system. Spark's RocksDB state stores copy files through it.
 */
class StoredFileSystem extends FileSystem {
  private var uri: URI = _
  private lazy val files = CheckpointFiles.of(getConf)

  override def initialize(name: URI, conf: Configuration): Unit = {
    super.initialize(name, conf)
    setConf(conf)
    uri = URI.create(s"${name.getScheme}://${Option(name.getAuthority).getOrElse("/")}")
  }

  override def getUri: URI = uri
  override def getScheme: String = uri.getScheme

  private def real(path: Path): Path = StoredCheckpoints.real(makeQualified(path))

  override def open(path: Path, bufferSize: Int): FSDataInputStream =
    StoredFileSystem.open(files, real(path))

  override def create(
      path: Path, permission: FsPermission, overwrite: Boolean, bufferSize: Int,
      replication: Short, blockSize: Long, progress: Progressable): FSDataOutputStream = {
    if (!overwrite && exists(path)) throw new FileAlreadyExistsException(path.toString)
    new FSDataOutputStream(
      new StoredOutput(content => files.write(real(path), content, overwrite)), null)
  }

  override def append(path: Path, bufferSize: Int, progress: Progressable): FSDataOutputStream =
    throw new UnsupportedOperationException("files of a checkpoint can't be appended to")

  override def rename(from: Path, to: Path): Boolean =
    throw new UnsupportedOperationException("files of a checkpoint can't be renamed")

  override def delete(path: Path, recursive: Boolean): Boolean = {
    val found = exists(path)
    if (found) files.delete(real(path))
    found
  }

  override def listStatus(path: Path): Array[FileStatus] = {
    val found = StoredFileSystem.list(files, path, real(path))
    if (found.isEmpty) Array(getFileStatus(path)).filterNot(_.isDirectory) else found
  }

  override def getFileStatus(path: Path): FileStatus = files.status(real(path)) match {
    case Some(status) => StoredFileSystem.status(makeQualified(path), status)
    case None => throw new FileNotFoundException(s"there is no file or directory $path")
  }

  /** Directories exist while they contain files. */
  override def mkdirs(path: Path, permission: FsPermission): Boolean = true

  override def getWorkingDirectory: Path = new Path(uri.getScheme, uri.getAuthority, "/")
  override def setWorkingDirectory(path: Path): Unit = ()
}

object StoredFileSystem {
  def open(files: CheckpointFiles, real: Path): FSDataInputStream =
    new FSDataInputStream(new RecordInput(ByteBuffer.wrap(files.read(real))))

  def list(files: CheckpointFiles, path: Path, real: Path): Array[FileStatus] =
    files.list(real).map { found =>
      status(new Path(path, found.path.substring(found.path.lastIndexOf('/') + 1)), found)
    }.toArray

  def status(path: Path, found: Status): FileStatus =
    new FileStatus(found.length, found.isDirectory, 1, 0, found.timestamp, path)
}

/** Collects a file in memory, and passes it to `write` when the stream is closed. */
private[stored] final class StoredOutput(write: Array[Byte] => Unit)
    extends ByteArrayOutputStream(1024) {
  private var done = false

  override def close(): Unit = synchronized {
    if (!done) {
      done = true
      write(toByteArray)
    }
  }

  def cancel(): Unit = synchronized { done = true }
}

/** Spark's checkpoint manager for checkpoints in object stores. `path` has sparklog's scheme. */
final class StoredFileManager(path: Path, conf: Configuration) extends CheckpointFileManager {
  private val files = CheckpointFiles.of(conf)

  override def createAtomic(path: Path, overwrite: Boolean): CancellableFSDataOutputStream = {
    val output = new StoredOutput(content =>
      files.write(StoredCheckpoints.real(path), content, overwrite))
    new CancellableFSDataOutputStream(output) {
      override def cancel(): Unit = output.cancel()
    }
  }

  override def open(path: Path): FSDataInputStream =
    StoredFileSystem.open(files, StoredCheckpoints.real(path))

  override def list(path: Path, filter: PathFilter): Array[FileStatus] =
    StoredFileSystem.list(files, path, StoredCheckpoints.real(path))
      .filter(s => filter.accept(s.getPath))

  override def exists(path: Path): Boolean = files.status(StoredCheckpoints.real(path)).isDefined

  /** Directories exist while they contain files. */
  override def mkdirs(path: Path): Unit = ()

  override def delete(path: Path): Unit = files.delete(StoredCheckpoints.real(path))

  override def isLocal: Boolean = false

  override def createCheckpointDirectory(): Path = path
}
