//! What a call does to the file system: the call table's other side.
#![allow(unsafe_code)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

use amphi_front_shared::layout::{Context, DEAD};
use amphi_front_shared::{Bytes, Call, Operation, Room, pack, status, unpack};
use amphi_queue::Payload;
use amphi_queue::format::Submission;
use amphi_rt::sync::{Condvar, Mutex};
use amphi_vfs::{
    AccessTimes, Allocate, Cred, Entry, FileSystem, Ino, Name, OpenFlags, Removed, RenameMode, Result, Seek,
    WriteMode, XattrMode,
};
use zerocopy::{FromBytes as _, IntoBytes as _};

use crate::errands;
use crate::guests::Guest;
use crate::range;
use crate::visitors::{CLIENTS_MAX, Visitor};

/// Bytes before a name in a listing: inode, cookie, type, length.
const ENTRY_BYTES: usize = 32;

/// Tells what is asked for, by its number, with another number.
type Tell<F> = Box<dyn Fn(&F, u64, u64) -> String + Send + Sync>;

/// A file system and who uses it.
pub(crate) struct Instance<F: FileSystem> {
    pub(crate) fs: Arc<F>,
    pub(crate) visitors: Vec<Visitor<F>>,
    /// What there is to tell, as JSON: what, and a number.
    tell: Tell<F>,
    turn: Mutex<u64>,
    turned: Condvar,
}

/// The one of this range. The function in the header knows its type.
static INSTANCE: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

impl<F: FileSystem + 'static> Instance<F> {
    /// Puts a file system behind the call table; the address of the function that calls go to.
    pub(crate) fn install(
        fs: F,
        tell: impl Fn(&F, u64, u64) -> String + Send + Sync + 'static,
    ) -> (&'static Self, u64) {
        let instance = Box::leak(Box::new(Self {
            fs: Arc::new(fs),
            visitors: (0..CLIENTS_MAX).map(|_| Visitor::default()).collect(),
            tell: Box::new(tell),
            turn: Mutex::new(0),
            turned: Condvar::named("a client's turn"),
        }));
        INSTANCE.store(ptr::from_mut(instance).cast(), Ordering::Release);
        let entry: extern "C" fn(*mut Call, *mut Context) = enter::<F>;
        (instance, entry as *const () as u64)
    }

    /// Takes the file system back.
    ///
    /// # Safety
    /// No call is under way, none will begin, and nobody uses what [`install`](Self::install) returned.
    pub(crate) unsafe fn remove() -> Option<F> {
        let instance = INSTANCE.swap(ptr::null_mut(), Ordering::AcqRel).cast::<Self>();
        // SAFETY: it came out of a box of this type in `install`, and the caller's promise.
        let instance = (!instance.is_null()).then(|| unsafe { Box::from_raw(instance) })?;
        let Self { fs, visitors, .. } = *instance;
        drop(visitors);
        Arc::into_inner(fs)
    }
}

/// Where calls arrive, on a stack and with thread-locals of the range.
extern "C" fn enter<F: FileSystem + 'static>(call: *mut Call, context: *mut Context) {
    range::lend(context, || {
        // SAFETY: the client's gate passes a call on its own stack, which nobody else uses until it returns.
        let call = unsafe { &mut *call };
        // SAFETY: `install` stored an instance of this type before the header named this function.
        let instance = unsafe { INSTANCE.load(Ordering::Acquire).cast::<Instance<F>>().as_ref() };
        let Some(instance) = instance else { return };
        let done = catch_unwind(AssertUnwindSafe(|| execute(instance, call)));
        if done.is_err() {
            // An error in the program: what it was at may be half done.
            call.status = status::ENDED;
            if let Some(header) = range::header() {
                header.dead.store(DEAD, Ordering::Release);
            }
        }
    });
}

/// Bytes of the caller's.
fn bytes<'a>(given: Bytes) -> &'a [u8] {
    if given.len == 0 {
        return &[];
    }
    // SAFETY: the client promises that they can be read while the call lasts (`Client::call`), which is as
    // long as anything here.
    unsafe { slice::from_raw_parts(given.at, given.len) }
}

/// Room of the caller's.
fn room<'a>(given: Room) -> &'a mut [u8] {
    if given.len == 0 {
        return &mut [];
    }
    // SAFETY: as in `bytes`, and nobody else has it.
    unsafe { slice::from_raw_parts_mut(given.at, given.len) }
}

fn cred(call: &Call) -> Cred {
    let groups = match call.caller.groups_len {
        0 => Vec::new(),
        // SAFETY: as in `bytes`.
        len => unsafe { slice::from_raw_parts(call.caller.groups, len) }.to_vec(),
    };
    Cred {
        uid: call.caller.uid,
        gid: call.caller.gid,
        groups,
        capabilities: call.capabilities(),
        umask: call.caller.umask as u16,
    }
}

/// Executes a call and answers in it.
pub(crate) fn execute<F: FileSystem>(instance: &Instance<F>, call: &mut Call) {
    let Some(operation) = Operation::of(call.operation) else {
        call.status = status::UNKNOWN;
        return;
    };
    let Some(visitor) = instance.visitors.get(call.client as usize) else {
        call.status = status::UNKNOWN;
        return;
    };
    if operation == Operation::Command {
        call.status = if command(visitor, call).is_some() { status::DONE } else { status::UNKNOWN };
        return;
    }
    match perform(instance, &visitor.guest, operation, call) {
        Ok(()) => call.status = status::DONE,
        Err(error) => call.fail(&error),
    }
}

/// Carries out a command of the queue's format. None: it is none, or nobody gives it.
fn command<F: FileSystem>(visitor: &Visitor<F>, call: &mut Call) -> Option<()> {
    let submission = Submission::read_from_bytes(bytes(call.first)).ok()?;
    // SAFETY: as in `room`.
    let payload = unsafe { Payload::over(call.room.at, call.room.len) };
    let completion = visitor.command(&submission, payload)?;
    call.answer.as_mut_bytes().copy_from_slice(completion.as_bytes());
    Some(())
}

/// What came of an errand, and the next one.
fn errand(call: &mut Call) {
    let [number, is_given, low, high, ..] = call.numbers;
    let answer = (is_given != 0).then_some(u128::from(high) << 64 | u128::from(low));
    let next = errands::next((number != 0).then_some((number, answer)));
    let Some(next) = next else { return call.answer[0] = 0 };
    call.answer[..4].copy_from_slice(&[next.number, next.kind, next.ino.0, next.renames]);
    put(call, &next.name);
}

fn answered(call: &mut Call, guest: &Guest, entry: Result<Entry>) -> Result<()> {
    let entry = entry?;
    guest.found(entry.attr.ino);
    call.answer = pack::attr(&entry.attr);
    Ok(())
}

fn removed(call: &mut Call, removed: Result<Removed>) -> Result<()> {
    let removed = removed?;
    call.answer[0] = removed.ino.0;
    call.answer[1] = u64::from(removed.nlink);
    Ok(())
}

/// Puts an answer of any size into the caller's room, if it fits; how long it is in any case.
fn put(call: &mut Call, answer: &[u8]) {
    if let Some(to) = room(call.room).get_mut(..answer.len()) {
        to.copy_from_slice(answer);
    }
    call.room.used = answer.len();
}

fn perform<F: FileSystem>(
    instance: &Instance<F>,
    guest: &Guest,
    operation: Operation,
    call: &mut Call,
) -> Result<()> {
    let fs = &instance.fs;
    let [a, b, c, d, e, ..] = call.numbers;
    let (ino, first, second) = (Ino(a), bytes(call.first), bytes(call.second));
    match operation {
        Operation::Nothing => {}
        Operation::Turn => {
            let mut turn = instance.turn.lock();
            instance.turned.wait_while(&mut turn, |turn| *turn % b.max(1) != a);
            *turn += 1;
            instance.turned.notify_all();
        }
        Operation::Promise => {
            let promise = fs.promise();
            call.answer[0] = u64::from(promise.metadata_durable_on_return)
                | u64::from(promise.atomic_writes) << 1
                | u64::from(promise.data_durable_on_return) << 2;
        }
        Operation::AccessTimes => {
            call.answer[0] = match fs.access_times() {
                AccessTimes::Relative => 0,
                AccessTimes::Strict => 1,
                AccessTimes::Never => 2,
            };
        }
        Operation::Lookup => answered(call, guest, fs.lookup(ino, Name::new(first)?))?,
        Operation::Reference => answered(call, guest, fs.reference(ino))?,
        Operation::Parent => call.answer[0] = fs.parent(ino)?.0,
        Operation::Forget => match guest.forgets(ino, b) {
            0 => {}
            count => fs.forget(ino, count),
        },
        Operation::Getattr => call.answer = pack::attr(&fs.getattr(ino)?),
        Operation::Setattr => {
            let change = unpack::set_attr(&call.numbers[1..]);
            call.answer = pack::attr(&fs.setattr(ino, &change, &cred(call))?);
        }
        Operation::Create => {
            let (file_type, cred) = (unpack::file_type(b), cred(call));
            let entry = fs.create(ino, Name::new(first)?, file_type, c as u16, d as u32, &cred);
            answered(call, guest, entry)?;
        }
        Operation::Tmpfile => {
            let entry = fs.tmpfile(ino, b as u16, &cred(call));
            answered(call, guest, entry)?;
        }
        Operation::Mkdir => {
            let entry = fs.mkdir(ino, Name::new(first)?, b as u16, &cred(call));
            answered(call, guest, entry)?;
        }
        Operation::Symlink => {
            let entry = fs.symlink(ino, Name::new(first)?, second, &cred(call));
            answered(call, guest, entry)?;
        }
        Operation::Readlink => put(call, &fs.readlink(ino)?),
        Operation::Link => answered(call, guest, fs.link(ino, Ino(b), Name::new(first)?))?,
        Operation::Unlink => removed(call, fs.unlink(ino, Name::new(first)?))?,
        Operation::UnlinkAs => {
            let gone = fs.unlink_as(ino, Name::new(first)?, &cred(call));
            removed(call, gone)?;
        }
        Operation::Rmdir => removed(call, fs.rmdir(ino, Name::new(first)?))?,
        Operation::RmdirAs => {
            let gone = fs.rmdir_as(ino, Name::new(first)?, &cred(call));
            removed(call, gone)?;
        }
        Operation::Rename => {
            let mode = match c {
                1 => RenameMode::NoReplace,
                2 => RenameMode::Exchange,
                _ => RenameMode::Replace,
            };
            let renamed = fs.rename(ino, Name::new(first)?, Ino(b), Name::new(second)?, mode)?;
            call.answer[0] = renamed.moved.0;
            call.answer[1] = u64::from(renamed.target.is_some());
            if let Some(target) = renamed.target {
                (call.answer[2], call.answer[3]) = (target.ino.0, u64::from(target.nlink));
            }
        }
        Operation::Open => {
            let flags = OpenFlags { write: b & 1 != 0, direct: b & 2 != 0, truncate: b & 4 != 0 };
            fs.open(ino, flags)?;
            guest.opened(ino);
        }
        Operation::Release => {
            if guest.releases(ino) {
                fs.release(ino);
            }
        }
        Operation::Read => call.answer[0] = fs.read(ino, b, room(call.room), c != 0)? as u64,
        Operation::Write => {
            let mode = WriteMode {
                append: c & 1 != 0,
                direct: c & 2 != 0,
                sync_data: c & 4 != 0,
                sync_metadata: c & 8 != 0,
            };
            call.answer[0] = fs.write(ino, b, first, mode, &cred(call))? as u64;
        }
        Operation::Fsync => fs.fsync(ino, b != 0)?,
        Operation::Sync => fs.sync()?,
        Operation::Readdir => list(&**fs, ino, b, call)?,
        Operation::Statfs => {
            let stat = fs.statfs()?;
            let counts =
                [stat.blocks, stat.blocks_free, stat.blocks_available, stat.inodes, stat.inodes_free];
            call.answer[0] = u64::from(stat.block_bytes);
            call.answer[1..6].copy_from_slice(&counts);
            call.answer[6] = u64::from(stat.name_bytes_max);
        }
        Operation::Seek => {
            call.answer[0] = fs.seek(ino, b, if c != 0 { Seek::Hole } else { Seek::Data })?;
        }
        Operation::Allocate => {
            let keep_size = e != 0;
            let what = match d {
                1 => Allocate::PunchHole,
                2 => Allocate::Zero { keep_size },
                _ => Allocate::Reserve { keep_size },
            };
            fs.allocate(ino, b, c, what, &cred(call))?;
        }
        Operation::DiscardFree => call.answer[0] = fs.discard_free(a..b, c)?,
        Operation::Getxattr => put(call, &fs.getxattr(ino, first)?),
        Operation::Setxattr => {
            let mode = match b {
                1 => XattrMode::Create,
                2 => XattrMode::Replace,
                _ => XattrMode::Set,
            };
            fs.setxattr(ino, first, second, mode)?;
        }
        Operation::Listxattr => {
            let mut names = Vec::new();
            for name in fs.listxattr(ino)? {
                names.extend_from_slice(&name);
                names.push(0);
            }
            put(call, &names);
        }
        Operation::Removexattr => fs.removexattr(ino, first)?,
        Operation::Errand => errand(call),
        Operation::Tell => {
            let text = (instance.tell)(fs, a, b);
            put(call, text.as_bytes());
        }
        // It is carried out before this.
        Operation::Command => {}
    }
    Ok(())
}

/// Lists as many entries as there is room for; the answer says whether that were all.
fn list(fs: &impl FileSystem, dir: Ino, cookie: u64, call: &mut Call) -> Result<()> {
    let (to, mut used, mut full) = (room(call.room), 0, false);
    fs.readdir(dir, cookie, &mut |entry| {
        let bytes = ENTRY_BYTES + entry.name.len();
        let Some(place) = to.get_mut(used..used + bytes) else {
            full = true;
            return false;
        };
        let words =
            [entry.ino.0, entry.next_cookie, pack::file_type(entry.file_type), entry.name.len() as u64];
        for (place, word) in place.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        place[ENTRY_BYTES..].copy_from_slice(entry.name);
        used += bytes;
        true
    })?;
    call.room.used = used;
    call.answer[0] = u64::from(!full);
    Ok(())
}
