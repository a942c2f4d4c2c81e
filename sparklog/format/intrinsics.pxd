# What C has and Python hasn't; only the compiled build asks for it.
cdef extern from *:
    void prefetch "__builtin_prefetch" (const void *) noexcept nogil
