package sparklog.sink

/** Formats text as Python shows it in messages. */
private[sink] object PythonText {
  /** Return the text as repr() of a Python str. */
  def repr(text: String): String = {
    val quote = if (text.contains('\'') && !text.contains('"')) '"' else '\''
    val out = new StringBuilder
    out += quote
    text.codePoints.forEach(point => out ++= escaped(point, quote))
    out += quote
    out.toString
  }

  private def escaped(point: Int, quote: Char): String = point match {
    case '\t' => "\\t"
    case '\n' => "\\n"
    case '\r' => "\\r"
    case _ if point == quote || point == '\\' => s"\\${point.toChar}"
    case _ if isPrintable(point) => new String(Character.toChars(point))
    case _ if point < 0x100 => f"\\x$point%02x"
    case _ if point < 0x10000 => f"\\u$point%04x"
    case _ => f"\\U$point%08x"
  }

  /**
   * Return whether Python prints the character as it is: its Unicode category is neither "Other"
   * nor "Separator", or it is the space.
   */
  private def isPrintable(point: Int): Boolean = Character.getType(point).toByte match {
    case Character.CONTROL | Character.FORMAT | Character.SURROGATE | Character.PRIVATE_USE |
        Character.UNASSIGNED | Character.LINE_SEPARATOR | Character.PARAGRAPH_SEPARATOR => false
    case Character.SPACE_SEPARATOR => point == ' '
    case _ => true
  }
}
