//! What a file system of this kind hands on.

/// Implements `FileSystem` and `Volume` for a type that is [`DirectAccess`](crate::DirectAccess), generic
/// over its device.
#[macro_export]
macro_rules! file_system {
    ($this:ident) => {
        impl<D: ::amphi_device::PageView + 'static> ::amphi_vfs::FileSystem for $this<D> {
            ::amphi_names::forward_names!(self => self);

            fn promise(&self) -> ::amphi_vfs::Promise {
                ::amphi_vfs::Promise {
                    metadata_durable_on_return: true,
                    atomic_writes: <Self as $crate::DirectAccess>::ATOMIC_WRITES,
                    data_durable_on_return: true,
                }
            }

            fn read(
                &self,
                ino: ::amphi_vfs::Ino,
                offset: u64,
                into: &mut [u8],
                _: bool,
            ) -> ::amphi_vfs::Result<usize> {
                $crate::read(self, ino, offset, into)
            }

            fn write(
                &self,
                ino: ::amphi_vfs::Ino,
                offset: u64,
                data: &[u8],
                mode: ::amphi_vfs::WriteMode,
                cred: &::amphi_vfs::Cred,
            ) -> ::amphi_vfs::Result<usize> {
                $crate::write(self, ino, offset, data, mode, cred)
            }

            fn fsync(&self, ino: ::amphi_vfs::Ino, _: bool) -> ::amphi_vfs::Result<()> {
                $crate::fsync(self, ino)
            }

            fn sync(&self) -> ::amphi_vfs::Result<()> {
                Ok(())
            }

            fn statfs(&self) -> ::amphi_vfs::Result<::amphi_vfs::StatFs> {
                Ok($crate::statfs(self))
            }

            fn seek(
                &self,
                ino: ::amphi_vfs::Ino,
                offset: u64,
                what: ::amphi_vfs::Seek,
            ) -> ::amphi_vfs::Result<u64> {
                $crate::seek(self, ino, offset, what)
            }

            fn allocate(
                &self,
                ino: ::amphi_vfs::Ino,
                offset: u64,
                length: u64,
                what: ::amphi_vfs::Allocate,
                cred: &::amphi_vfs::Cred,
            ) -> ::amphi_vfs::Result<()> {
                $crate::allocate(self, ino, offset, length, what, cred)
            }

            fn discard_free(
                &self,
                range: ::std::ops::Range<u64>,
                shortest: u64,
            ) -> ::amphi_vfs::Result<u64> {
                $crate::discard_free(self, range, shortest)
            }
        }

        impl<D: ::amphi_device::PageView + 'static> ::amphi_volume::Volume<D> for $this<D> {
            const IDENTITY: ::amphi_volume::Identity = <Self as $crate::DirectAccess>::IDENTITY;

            fn probe(device: &D) -> ::amphi_volume::Result<::amphi_volume::About> {
                $crate::probe::<Self>(device)
            }

            fn format(
                device: &::std::sync::Arc<D>,
                options: &::amphi_volume::FormatOptions,
            ) -> ::amphi_volume::Result<()> {
                $crate::format::<Self>(device, options)
            }

            fn mount(
                device: &::std::sync::Arc<D>,
                options: &::amphi_volume::MountOptions,
            ) -> ::amphi_volume::Result<Self> {
                $crate::open(device, options)
            }

            fn unmount(self) -> ::amphi_volume::Result<()> {
                $crate::close(&self)
            }

            fn about(&self) -> ::amphi_volume::About {
                $crate::about(self)
            }

            fn check(
                device: &::std::sync::Arc<D>,
                _: &mut dyn FnMut(::amphi_volume::Progress),
            ) -> ::amphi_volume::Result<::amphi_volume::Report> {
                $crate::check::<Self>(device)
            }

            fn tune(
                device: &D,
                changes: &::amphi_volume::Changes,
            ) -> ::amphi_volume::Result<::amphi_volume::About> {
                $crate::tune::<Self>(device, changes)
            }
        }
    };
}
