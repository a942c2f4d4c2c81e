package sparklog.checkpoint.stored

import java.io.IOException
import java.lang.reflect.InvocationTargetException
import java.util.Optional
import java.util.function.Supplier

import org.apache.hadoop.fs.{FileSystem, Path}

/**
 * A PUT with the header If-None-Match for S3A of Hadoop 3.4.1, whose `createFile` has no
 * conditional creation. S3A builds the request (encryption, storage class, ACL), repeats it and
 * translates its errors. By reflection, because this code is not compiled against hadoop-aws.
 */
private[stored] final class S3aConditionalPut(fs: FileSystem) {
  import S3aConditionalPut.{call, invoke}

  /**
   * Create an object. Throws S3A's exceptions: RemoteFileChangedException if the object exists, and
   * AWSBadRequestException if another request creates it at the same time.
   */
  def create(path: Path, content: Array[Byte]): Unit =
    try {
      val helper = call(fs, "getWriteOperationHelper")
      val key = call(fs, "pathToKey", path)
      // Otherwise S3A would look for markers of the parent directories, and delete them.
      val options = invoke(
        load("org.apache.hadoop.fs.s3a.impl.PutObjectOptions"), null, "keepingDirs")
      val length = Long.box(content.length.toLong)
      val request = call(helper, "createPutObjectRequest", key, length, options)
      val builder = call(request, "toBuilder")
      call(builder, "overrideConfiguration", conditional(request))
      val data = load("org.apache.hadoop.fs.s3a.S3ADataBlocks$BlockUploadData")
        .getConstructor(classOf[Array[Byte]], classOf[Supplier[_]]).newInstance(content, null)
      call(helper, "putObject", call(builder, "build"), options, data.asInstanceOf[AnyRef], null)
      ()
    } catch {
      case e: InvocationTargetException => throw e.getCause
      case e: ReflectiveOperationException => throw new IOException(
          s"${fs.getClass.getName} has no conditional PUT. Use the S3A file system of Hadoop " +
            "3.4.1 or later", e)
    }

  /** Return the request's own settings, such as its timeout, with the header. */
  private def conditional(request: AnyRef): AnyRef = {
    val own = call(request, "overrideConfiguration").asInstanceOf[Optional[AnyRef]]
    val none: Supplier[AnyRef] = () =>
      invoke(load("software.amazon.awssdk.awscore.AwsRequestOverrideConfiguration"), null,
        "builder")
    val builder = own.map[AnyRef](call(_, "toBuilder")).orElseGet(none)
    call(builder, "putHeader", "If-None-Match", "*")
    call(builder, "build")
  }

  private def load(name: String): Class[_] = fs.getClass.getClassLoader.loadClass(name)
}

private object S3aConditionalPut {
  private def call(target: AnyRef, name: String, arguments: AnyRef*): AnyRef =
    invoke(target.getClass, target, name, arguments: _*)

  /** Call a public method, also of a private class of the SDK. */
  private def invoke(owner: Class[_], target: AnyRef, name: String, arguments: AnyRef*): AnyRef = {
    def fits(kind: Class[_], argument: AnyRef) =
      kind.isPrimitive || argument == null || kind.isInstance(argument)
    val method = owner.getMethods.find { m =>
      m.getName == name && m.getParameterCount == arguments.size &&
      m.getParameterTypes.zip(arguments).forall { case (kind, value) => fits(kind, value) }
    }.getOrElse(throw new NoSuchMethodException(s"${owner.getName}.$name"))
    method.setAccessible(true)
    method.invoke(target, arguments: _*)
  }
}
