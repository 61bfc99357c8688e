//! The methods of [`amphi_vfs::FileSystem`] that are about contents of files, written once for all file
//! systems of this kind.

/// Inside an `impl FileSystem`: reading, writing, seeking and allocating, done by this crate on a
/// [`Files`](crate::files::Files).
#[macro_export]
macro_rules! forward_files {
    ($this:ident => $fs:expr) => {
        fn read(
            &$this,
            ino: ::amphi_vfs::Ino,
            offset: u64,
            into: &mut [u8],
            direct: bool,
        ) -> ::amphi_vfs::Result<usize> {
            $crate::reads::read($fs, &::amphi_names::inode($fs, ino)?, offset, into, direct)
        }

        fn write(
            &$this,
            ino: ::amphi_vfs::Ino,
            offset: u64,
            data: &[u8],
            mode: ::amphi_vfs::WriteMode,
            cred: &::amphi_vfs::Cred,
        ) -> ::amphi_vfs::Result<usize> {
            let inode = &::amphi_names::inode($fs, ino)?;
            ::amphi_names::with_room($fs, || $crate::files::write($fs, inode, offset, data, mode, cred))
        }

        fn seek(
            &$this,
            ino: ::amphi_vfs::Ino,
            offset: u64,
            what: ::amphi_vfs::Seek,
        ) -> ::amphi_vfs::Result<u64> {
            $crate::ranges::seek($fs, &*::amphi_names::inode($fs, ino)?, offset, what)
        }

        fn allocate(
            &$this,
            ino: ::amphi_vfs::Ino,
            offset: u64,
            length: u64,
            what: ::amphi_vfs::Allocate,
            cred: &::amphi_vfs::Cred,
        ) -> ::amphi_vfs::Result<()> {
            let inode = &::amphi_names::inode($fs, ino)?;
            let attempt = || $crate::files::Files::allocate($fs, inode, offset, length, what, cred);
            ::amphi_names::with_room($fs, attempt)
        }
    };
}
