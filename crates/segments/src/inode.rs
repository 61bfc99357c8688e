//! Between an inode on the device and the one in memory.

use amphi_names::{Part, State};
use amphi_vfs::FileType;
use amphi_volume::TypeCodes;
use zerocopy::FromZeros;

use crate::files::FilePart;
use crate::format::InodeHead;

impl InodeHead {
    /// What an inode says. A file's size is the one that the device may say.
    pub fn of<P: FilePart>(state: &State<P>, types: &TypeCodes) -> Self {
        let regular = state.file_type == FileType::Regular;
        let size = if regular { state.file().stored_size } else { state.size };
        Self {
            kind: types.code(state.file_type),
            unnamed: u8::from(state.unnamed),
            mode: state.mode.into(),
            nlink: state.nlink.into(),
            uid: state.uid.into(),
            gid: state.gid.into(),
            rdev: state.rdev.into(),
            generation: state.generation.into(),
            size: size.into(),
            atime: state.atime.into(),
            mtime: state.mtime.into(),
            ctime: state.ctime.into(),
        }
    }

    /// A directory that is made now, with a directory's links.
    #[must_use]
    pub fn directory(mode: u16, types: &TypeCodes) -> Self {
        let now = amphi_rt::time::wall_ns();
        let mut head = Self::new_zeroed();
        head.kind = types.code(FileType::Directory);
        (head.mode, head.nlink) = (mode.into(), 2.into());
        (head.atime, head.mtime, head.ctime) = (now.into(), now.into(), now.into());
        head
    }

    /// As memory has the inode, which has a name or had none ever.
    pub fn state<P: Part>(&self, file_type: FileType, part: P) -> State<P> {
        State {
            file_type,
            mode: self.mode.get() & 0o7777,
            uid: self.uid.get(),
            gid: self.gid.get(),
            nlink: self.nlink.get(),
            size: self.size.get(),
            atime: self.atime.get(),
            mtime: self.mtime.get(),
            ctime: self.ctime.get(),
            generation: self.generation.get(),
            rdev: self.rdev.get(),
            attributes: None,
            orphan: false,
            unnamed: self.unnamed == 1,
            gone: false,
            atime_dirty: false,
            part,
        }
    }
}
