//! How a client comes in: it connects, and whoever may enter is sent the range's memory and image with where
//! they belong.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

use crate::layout::MAGIC;
use crate::protection::Protection;

/// What a client is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// Where the range begins.
    pub base: u64,
    /// Bytes of the image.
    pub image_bytes: u64,
    /// The client's number.
    pub client: u32,
    /// How it has to protect the range.
    pub protection: Protection,
}

const WORDS: usize = 5;

/// The name of the range that the process of a number keeps for its mount.
#[must_use]
pub fn range_of(process: u32) -> String {
    format!("amphi-shared-{process}")
}

/// An abstract socket, which needs no directory and goes away with its server.
///
/// # Errors
/// The name is too long.
pub fn address(name: &str) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(name)
}

/// Lets a client in.
///
/// # Errors
/// The client is gone.
pub fn welcome(
    socket: &UnixStream,
    told: &Welcome,
    memory: BorrowedFd<'_>,
    image: BorrowedFd<'_>,
) -> io::Result<()> {
    let words = [MAGIC, told.base, told.image_bytes, u64::from(told.client), told.protection.number()];
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let fds = [memory, image];
    assert!(ancillary.push(SendAncillaryMessage::ScmRights(&fds)), "there is space for two descriptors");
    sendmsg(socket.as_fd(), &[IoSlice::new(&bytes)], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// The welcome with memory and image; none if the server refuses.
pub(crate) type Received = Option<(Welcome, OwnedFd, OwnedFd)>;

/// Waits for the welcome.
pub(crate) fn await_welcome(socket: &UnixStream) -> io::Result<Received> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [0; WORDS * 8];
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let received = recvmsg(socket.as_fd(), &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?.bytes;
    if received == 0 {
        return Ok(None);
    }
    let mut fds = ancillary
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(fds) => Some(fds),
            _ => None,
        })
        .flatten();
    let word = |index: usize| {
        bytes.chunks_exact(8).nth(index).and_then(|word| word.try_into().ok()).map_or(0, u64::from_le_bytes)
    };
    let stranger =
        || io::Error::new(io::ErrorKind::InvalidData, "what listens there is no range of this version");
    if received != bytes.len() || word(0) != MAGIC {
        return Err(stranger());
    }
    let protection = Protection::of(word(4)).ok_or_else(stranger)?;
    let client = u32::try_from(word(3)).map_err(|_| stranger())?;
    let told = Welcome { base: word(1), image_bytes: word(2), client, protection };
    match (fds.next(), fds.next()) {
        (Some(memory), Some(image)) => Ok(Some((told, memory, image))),
        _ => Err(stranger()),
    }
}
