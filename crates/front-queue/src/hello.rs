//! What the server says on a new connection: one message, with the memory attached if the client may have it.

use std::io;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

/// Come in: the memory is attached.
const WELCOME: [u8; 8] = *b"AMPHI-Q1";
/// The server lets nobody else in, or not this user.
const REFUSED: [u8; 8] = *b"AMPHI-NO";

/// Hands the memory over.
///
/// # Errors
/// The client is gone.
pub fn welcome(socket: &UnixStream, memory: BorrowedFd<'_>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let fds = [memory];
    assert!(ancillary.push(SendAncillaryMessage::ScmRights(&fds)), "there is space for one descriptor");
    sendmsg(socket.as_fd(), &[IoSlice::new(&WELCOME)], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Says no.
pub fn refuse(socket: &UnixStream) {
    // A client that has gone away needs no answer.
    let _ = sendmsg(
        socket.as_fd(),
        &[IoSlice::new(&REFUSED)],
        &mut SendAncillaryBuffer::default(),
        SendFlags::NOSIGNAL,
    );
}

/// The memory, or none if the server refuses.
///
/// # Errors
/// The server is gone, or it is something else.
pub fn await_welcome(socket: &UnixStream) -> io::Result<Option<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut word = [0; WELCOME.len()];
    let received =
        recvmsg(socket.as_fd(), &mut [IoSliceMut::new(&mut word)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let memory = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    match (word, memory) {
        (WELCOME, Some(memory)) if received.bytes == WELCOME.len() => Ok(Some(memory)),
        (REFUSED, _) => Ok(None),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "what listens there is no door to a mount")),
    }
}
