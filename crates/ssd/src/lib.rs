//! The emulated SSD.
