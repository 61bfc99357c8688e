//! How a record keeps types of other crates: an inode as its number, a type of file as its place in a list, a
//! page as its bytes.

pub mod number {
    use amphi_vfs::Ino;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(ino: &Ino, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(ino.0)
    }

    pub fn deserialize<'de, T: Deserializer<'de>>(from: T) -> Result<Ino, T::Error> {
        u64::deserialize(from).map(Ino)
    }
}

pub mod kind {
    use amphi_vfs::FileType;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    const TYPES: [FileType; 7] = [
        FileType::Regular,
        FileType::Directory,
        FileType::Symlink,
        FileType::Fifo,
        FileType::Socket,
        FileType::CharDevice,
        FileType::BlockDevice,
    ];

    pub fn serialize<S: Serializer>(kind: &FileType, to: S) -> Result<S::Ok, S::Error> {
        let code = TYPES.iter().position(|known| known == kind);
        to.serialize_u8(code.unwrap_or(TYPES.len()) as u8)
    }

    pub fn deserialize<'de, T: Deserializer<'de>>(from: T) -> Result<FileType, T::Error> {
        let code = u8::deserialize(from)?;
        TYPES.get(usize::from(code)).copied().ok_or_else(|| T::Error::custom("no type of file"))
    }
}

pub mod child {
    use amphi_names::Child;
    use amphi_vfs::{FileType, Ino};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    struct Kept(#[serde(with = "super::number")] Ino, #[serde(with = "super::kind")] FileType);

    pub fn serialize<S: Serializer>(child: &Child, to: S) -> Result<S::Ok, S::Error> {
        Kept(child.ino, child.file_type).serialize(to)
    }

    pub fn deserialize<'de, T: Deserializer<'de>>(from: T) -> Result<Child, T::Error> {
        Kept::deserialize(from).map(|Kept(ino, file_type)| Child { ino, file_type })
    }
}

pub mod page {
    use amphi_device::PAGE_BYTES;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(page: &[u8; PAGE_BYTES], to: S) -> Result<S::Ok, S::Error> {
        page.as_slice().serialize(to)
    }

    pub fn deserialize<'de, T: Deserializer<'de>>(from: T) -> Result<Box<[u8; PAGE_BYTES]>, T::Error> {
        let bytes = Vec::<u8>::deserialize(from)?;
        bytes.try_into().map_err(|_| T::Error::custom("no page"))
    }
}
