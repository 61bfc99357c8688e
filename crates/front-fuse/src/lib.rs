//! FUSE front end.
