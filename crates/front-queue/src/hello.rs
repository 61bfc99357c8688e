//! How a client and the server greet each other: the client shows that it can see the mount, the server hands
//! the memory over.

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

/// What the client says, with its directory attached.
const KNOCK: [u8; 8] = *b"AMPHI-Q?";

/// Asks to come in. `root` is the mount's root as the client sees it: an abstract socket is there for whoever
/// shares the network, also for one from whom the mount itself is hidden.
///
/// # Errors
/// The server is gone.
pub fn knock(socket: &UnixStream, root: BorrowedFd<'_>) -> io::Result<()> {
    send(socket, KNOCK, root)
}

/// The directory of a client that has knocked.
///
/// # Errors
/// It said something else, or nothing yet.
pub fn knocked(socket: &UnixStream) -> io::Result<OwnedFd> {
    match receive(socket, RecvFlags::DONTWAIT)? {
        (KNOCK, Some(root)) => Ok(root),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "a client that did not knock")),
    }
}

/// Hands the memory over.
///
/// # Errors
/// The client is gone.
pub fn welcome(socket: &UnixStream, memory: BorrowedFd<'_>) -> io::Result<()> {
    send(socket, WELCOME, memory)
}

fn send(socket: &UnixStream, word: [u8; 8], fd: BorrowedFd<'_>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let fds = [fd];
    assert!(ancillary.push(SendAncillaryMessage::ScmRights(&fds)), "there is space for one descriptor");
    sendmsg(socket.as_fd(), &[IoSlice::new(&word)], &mut ancillary, SendFlags::NOSIGNAL)?;
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
    match receive(socket, RecvFlags::empty())? {
        (WELCOME, Some(memory)) => Ok(Some(memory)),
        (REFUSED, _) => Ok(None),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "what listens there is no door to a mount")),
    }
}

/// One word and the descriptor that came with it. A shorter message is no word of ours.
fn receive(socket: &UnixStream, flags: RecvFlags) -> io::Result<([u8; 8], Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut word = [0; WELCOME.len()];
    let mut parts = [IoSliceMut::new(&mut word)];
    recvmsg(socket.as_fd(), &mut parts, &mut ancillary, flags | RecvFlags::CMSG_CLOEXEC)?;
    let fd = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    Ok((word, fd))
}
