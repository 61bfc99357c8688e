//! ByteFS.
