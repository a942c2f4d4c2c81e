package sparklog.checkpoint.stored

/**
 * The settings of a ledger.
 *
 * @param giveUpMs how long a request is repeated that fails
 * @param pauseMs the first pause between two attempts
 * @param rotateEntries a run with fewer entries is not ended by its own driver
 * @param maxEntries a run with more entries is ended, however many of them are needed
 * @param moveBytes how many bytes of old entries are written again at the end of a run
 * @param beginBytes how many bytes of files are written again when a driver begins
 * @param keepRuns how many runs keep their first entry and their seal
 * @param keepMs how long first entries and seals of older runs are kept as well
 */
final case class LedgerSettings(
    giveUpMs: Long = 120000, pauseMs: Long = 100, rotateEntries: Long = 200,
    maxEntries: Long = 2000, moveBytes: Long = 64L << 20,
    beginBytes: Long = 16L << 20, keepRuns: Long = 1000,
    keepMs: Long = 30L * 24 * 3600 * 1000, nowMs: () => Long = () => System.currentTimeMillis())
