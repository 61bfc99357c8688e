//! The methods of [`amphi_vfs::FileSystem`] that are about names, written once for all file systems.

/// Inside an `impl FileSystem`: every operation on names, done by this crate on a [`Store`](crate::Store).
/// What is left to the file system is its promise, the contents of files, `sync` and `statfs`.
///
/// ```text
/// impl FileSystem for Toy {
///     amphi_names::forward_names!(self => &self.store);
///     // promise, read, write, …
/// }
/// ```
#[macro_export]
macro_rules! forward_names {
    ($this:ident => $store:expr) => {
        fn access_times(&$this) -> ::amphi_vfs::AccessTimes {
            $crate::Store::names($store).access_times()
        }

        fn lookup(
            &$this,
            dir: ::amphi_vfs::Ino,
            name: ::amphi_vfs::Name<'_>,
        ) -> ::amphi_vfs::Result<::amphi_vfs::Entry> {
            $crate::Store::names($store).health.explain($crate::lookup($store, dir, name))
        }

        fn reference(&$this, ino: ::amphi_vfs::Ino) -> ::amphi_vfs::Result<::amphi_vfs::Entry> {
            $crate::reference($store, ino)
        }

        fn parent(&$this, dir: ::amphi_vfs::Ino) -> ::amphi_vfs::Result<::amphi_vfs::Ino> {
            $crate::parent($store, dir)
        }

        fn forget(&$this, ino: ::amphi_vfs::Ino, count: u64) {
            $crate::forget($store, ino, count);
        }

        fn getattr(&$this, ino: ::amphi_vfs::Ino) -> ::amphi_vfs::Result<::amphi_vfs::Attr> {
            $crate::getattr($store, ino)
        }

        fn setattr(
            &$this,
            ino: ::amphi_vfs::Ino,
            change: &::amphi_vfs::SetAttr,
            cred: &::amphi_vfs::Cred,
        ) -> ::amphi_vfs::Result<::amphi_vfs::Attr> {
            $crate::setattr($store, ino, change, cred)
        }

        fn create(
            &$this,
            dir: ::amphi_vfs::Ino,
            name: ::amphi_vfs::Name<'_>,
            file_type: ::amphi_vfs::FileType,
            mode: u16,
            rdev: u32,
            cred: &::amphi_vfs::Cred,
        ) -> ::amphi_vfs::Result<::amphi_vfs::Entry> {
            $crate::create($store, dir, name, file_type, mode, rdev, cred)
        }

        fn tmpfile(
            &$this,
            dir: ::amphi_vfs::Ino,
            mode: u16,
            cred: &::amphi_vfs::Cred,
        ) -> ::amphi_vfs::Result<::amphi_vfs::Entry> {
            $crate::tmpfile($store, dir, mode, cred)
        }

        fn mkdir(
            &$this,
            dir: ::amphi_vfs::Ino,
            name: ::amphi_vfs::Name<'_>,
            mode: u16,
            cred: &::amphi_vfs::Cred,
        ) -> ::amphi_vfs::Result<::amphi_vfs::Entry> {
            $crate::mkdir($store, dir, name, mode, cred)
        }

        fn symlink(
            &$this,
            dir: ::amphi_vfs::Ino,
            name: ::amphi_vfs::Name<'_>,
            target: &[u8],
            cred: &::amphi_vfs::Cred,
        ) -> ::amphi_vfs::Result<::amphi_vfs::Entry> {
            $crate::symlink($store, dir, name, target, cred)
        }

        fn readlink(&$this, ino: ::amphi_vfs::Ino) -> ::amphi_vfs::Result<Vec<u8>> {
            $crate::readlink($store, ino)
        }

        fn link(
            &$this,
            ino: ::amphi_vfs::Ino,
            dir: ::amphi_vfs::Ino,
            name: ::amphi_vfs::Name<'_>,
        ) -> ::amphi_vfs::Result<::amphi_vfs::Entry> {
            $crate::link($store, ino, dir, name)
        }

        fn unlink(
            &$this,
            dir: ::amphi_vfs::Ino,
            name: ::amphi_vfs::Name<'_>,
        ) -> ::amphi_vfs::Result<::amphi_vfs::Removed> {
            $crate::unlink($store, dir, name, &$crate::Trusted)
        }

        fn unlink_as(
            &$this,
            dir: ::amphi_vfs::Ino,
            name: ::amphi_vfs::Name<'_>,
            cred: &::amphi_vfs::Cred,
        ) -> ::amphi_vfs::Result<::amphi_vfs::Removed> {
            $crate::unlink($store, dir, name, cred)
        }

        fn rmdir(
            &$this,
            dir: ::amphi_vfs::Ino,
            name: ::amphi_vfs::Name<'_>,
        ) -> ::amphi_vfs::Result<::amphi_vfs::Removed> {
            $crate::rmdir($store, dir, name, &$crate::Trusted)
        }

        fn rmdir_as(
            &$this,
            dir: ::amphi_vfs::Ino,
            name: ::amphi_vfs::Name<'_>,
            cred: &::amphi_vfs::Cred,
        ) -> ::amphi_vfs::Result<::amphi_vfs::Removed> {
            $crate::rmdir($store, dir, name, cred)
        }

        fn rename(
            &$this,
            from: ::amphi_vfs::Ino,
            name: ::amphi_vfs::Name<'_>,
            to: ::amphi_vfs::Ino,
            new_name: ::amphi_vfs::Name<'_>,
            mode: ::amphi_vfs::RenameMode,
        ) -> ::amphi_vfs::Result<::amphi_vfs::Renamed> {
            $crate::rename($store, from, name, to, new_name, mode)
        }

        fn open(&$this, ino: ::amphi_vfs::Ino, flags: ::amphi_vfs::OpenFlags) -> ::amphi_vfs::Result<()> {
            $crate::open($store, ino, flags)
        }

        fn release(&$this, ino: ::amphi_vfs::Ino) {
            $crate::release($store, ino);
        }

        fn readdir(
            &$this,
            dir: ::amphi_vfs::Ino,
            cookie: u64,
            sink: &mut ::amphi_vfs::DirSink<'_>,
        ) -> ::amphi_vfs::Result<()> {
            $crate::Store::names($store).health.explain($crate::readdir($store, dir, cookie, sink))
        }

        fn getxattr(&$this, ino: ::amphi_vfs::Ino, name: &[u8]) -> ::amphi_vfs::Result<Vec<u8>> {
            $crate::Store::names($store).health.explain($crate::getxattr($store, ino, name))
        }

        fn setxattr(
            &$this,
            ino: ::amphi_vfs::Ino,
            name: &[u8],
            value: &[u8],
            mode: ::amphi_vfs::XattrMode,
        ) -> ::amphi_vfs::Result<()> {
            $crate::setxattr($store, ino, name, value, mode)
        }

        fn listxattr(&$this, ino: ::amphi_vfs::Ino) -> ::amphi_vfs::Result<Vec<Vec<u8>>> {
            $crate::Store::names($store).health.explain($crate::listxattr($store, ino))
        }

        fn removexattr(&$this, ino: ::amphi_vfs::Ino, name: &[u8]) -> ::amphi_vfs::Result<()> {
            $crate::removexattr($store, ino, name)
        }
    };
}
