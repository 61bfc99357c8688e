//! How the program gets into its range: it makes the memory, copies its own segments into it as the kernel
//! would, and jumps to their beginning. The program is position-independent and relocates itself there.

use std::arch::asm;
use std::convert::Infallible;
use std::ffi::CString;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use amphi_front_shared::WHY_NO_GATE;
use amphi_front_shared::layout::{FIRST_STACK_BYTES, Header, MEMORY_BYTES, PAGE, PROGRAM_AT, base_of};
use amphi_front_shared_core::{door, range};
use anyhow::{Context as _, Result, anyhow, bail};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags, madvise, mmap, mprotect};

unsafe extern "C" {
    /// The first byte of the program as it is loaded; from the linker.
    static __ehdr_start: u8;
}

/// Goes on in the range. Returns only if it cannot: why.
pub fn into_range() -> anyhow::Error {
    match load() {
        Ok(never) => match never {},
        Err(error) => error.context("the shared range cannot be made"),
    }
}

/// What the system tells a program that starts (`getauxval(3)`).
mod told {
    pub const NOTHING: u64 = 0;
    pub const HEADERS: u64 = 3;
    pub const LOADER: u64 = 7;
    pub const ENTRY: u64 = 9;
    pub const RANDOM: u64 = 25;
    pub const HWCAP2: u64 = 26;
    /// The kernel's own code for reading clocks, which lies elsewhere in each process.
    pub const CLOCKS: u64 = 33;
}

/// A segment of an ELF file that is loaded.
struct Segment {
    is_code: bool,
    in_file: u64,
    at: u64,
    file_bytes: u64,
    bytes: u64,
}

fn word<const N: usize>(file: &[u8], at: u64) -> Result<[u8; N]> {
    let bytes = file.get(at as usize..at as usize + N).context("the program's own file is cut off")?;
    Ok(bytes.try_into()?)
}

fn long(file: &[u8], at: u64) -> Result<u64> {
    Ok(u64::from_le_bytes(word(file, at)?))
}

/// The segments, where the program begins, and where its headers are.
fn segments(file: &[u8]) -> Result<(Vec<Segment>, u64, u64)> {
    const LOADED: u32 = 1;
    const INTERPRETED: u32 = 3;
    const EXECUTABLE: u32 = 1;
    let (entry, headers) = (long(file, 24)?, long(file, 32)?);
    let each = u64::from(u16::from_le_bytes(word(file, 54)?));
    let count = u64::from(u16::from_le_bytes(word(file, 56)?));
    let mut segments = Vec::new();
    for at in (0..count).map(|number| headers + number * each) {
        match u32::from_le_bytes(word(file, at)?) {
            LOADED => segments.push(Segment {
                is_code: u32::from_le_bytes(word(file, at + 4)?) & EXECUTABLE != 0,
                in_file: long(file, at + 8)?,
                at: long(file, at + 16)?,
                file_bytes: long(file, at + 32)?,
                bytes: long(file, at + 40)?,
            }),
            INTERPRETED => bail!("the program is not linked statically; docs/shared.md says how it is built"),
            _ => {}
        }
    }
    Ok((segments, entry, headers))
}

fn load() -> Result<Infallible> {
    let place: u64 = std::env::args().nth(2).context("a place is needed")?.parse()?;
    let base = base_of(place);
    let file = std::fs::read("/proc/self/exe")?;
    let (segments, entry, headers) = segments(&file)?;
    let system = std::fs::read("/proc/self/auxv")?;
    if auxiliary(&system).all(|(what, value)| what != told::HWCAP2 || value & 2 == 0) {
        bail!(WHY_NO_GATE);
    }

    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let memory = memfd_create("amphi-shared", flags)?;
    ftruncate(&memory, MEMORY_BYTES)?;
    fcntl_add_seals(&memory, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    let how = MapFlags::SHARED | MapFlags::FIXED_NOREPLACE | MapFlags::NORESERVE;
    let read_write = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: nothing that exists is replaced.
    unsafe { mmap(base as *mut _, MEMORY_BYTES as usize, read_write, how, memory.as_fd(), 0) }
        .with_context(|| format!("the addresses of place {place} are taken"))?;
    // SAFETY: the mapping above. A process that this one starts has no business there.
    unsafe { madvise(base as *mut _, MEMORY_BYTES as usize, Advice::LinuxDontDump)? };

    let program = base + PROGRAM_AT;
    let (mut text, mut end) = (None, program);
    for segment in &segments {
        let from = file
            .get(segment.in_file as usize..(segment.in_file + segment.file_bytes) as usize)
            .context("the program's own file is cut off")?;
        let to = program + segment.at;
        end = end.max(to + segment.bytes);
        // SAFETY: inside of the new mapping, which is zero where the segment's file has no bytes.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), to as *mut u8, from.len()) };
        if segment.is_code {
            let start = to / PAGE * PAGE;
            text = Some((start, (to + segment.bytes).next_multiple_of(PAGE) - start));
        }
    }
    let (text_at, text_bytes) = text.context("the program has no code")?;
    // SAFETY: whole pages of the new mapping, with instructions alone: the linker gives them pages of their
    // own.
    unsafe { mprotect(text_at as *mut _, text_bytes as usize, MprotectFlags::READ | MprotectFlags::EXEC)? };

    let stack = end.next_multiple_of(PAGE);
    let stack_end = stack + FIRST_STACK_BYTES;
    // SAFETY: the first page of the new mapping, of zeros, which all of its fields may be.
    let header = unsafe { &*(base as *const Header) };
    header.text_at.store(text_at, Ordering::Relaxed);
    header.text_bytes.store(text_bytes, Ordering::Relaxed);
    header.heap_at.store(stack_end, Ordering::Relaxed);

    let here = &raw const __ehdr_start as u64;
    let there = |address: u64| address - here + program;
    // SAFETY: the same statics of the copy, which does not run yet.
    let (base_there, memory_there) = unsafe {
        (
            &*(there(&raw const range::BASE as u64) as *const AtomicU64),
            &*(there(&raw const range::MEMORY as u64) as *const AtomicI32),
        )
    };
    base_there.store(base, Ordering::Relaxed);
    memory_there.store(door::keep(memory), Ordering::Relaxed);
    let words = start_words(&system, program, headers, entry)?;
    // SAFETY: the program's copy, its stack, and words for it as the system lays them out.
    unsafe { start(&words, stack_end, program + entry) }
}

fn auxiliary(system: &[u8]) -> impl Iterator<Item = (u64, u64)> {
    let word =
        |pair: &[u8], at: usize| pair[at..at + 8].try_into().map(u64::from_le_bytes).unwrap_or(told::NOTHING);
    system.chunks_exact(16).map(move |pair| (word(pair, 0), word(pair, 8)))
}

/// What a program finds on its stack: number of arguments, arguments, environment, what the system tells.
struct Words {
    texts: Vec<CString>,
    arguments: usize,
    told: Vec<(u64, u64)>,
}

fn start_words(system: &[u8], program: u64, headers: u64, entry: u64) -> Result<Words> {
    let text =
        |text: &std::ffi::OsStr| CString::new(text.as_bytes()).map_err(|_| anyhow!("a zero in a text"));
    let mut texts = std::env::args_os().map(|word| text(&word)).collect::<Result<Vec<_>>>()?;
    let arguments = texts.len();
    for (name, value) in std::env::vars_os() {
        let mut both = name;
        both.push("=");
        both.push(value);
        texts.push(text(&both)?);
    }
    let told = auxiliary(system)
        .filter(|(what, _)| !matches!(*what, told::NOTHING | told::CLOCKS))
        .map(|(what, value)| match what {
            told::HEADERS => (what, program + headers),
            told::ENTRY => (what, program + entry),
            told::LOADER => (what, 0),
            _ => (what, value),
        })
        .collect();
    Ok(Words { texts, arguments, told })
}

/// Lays the words out below `stack_end` and starts the program.
///
/// # Safety
/// Below `stack_end` is a stack that nobody uses, and at `entry` the beginning of a program.
unsafe fn start(words: &Words, stack_end: u64, entry: u64) -> ! {
    let mut at = stack_end;
    let mut put = |bytes: &[u8]| {
        at -= bytes.len() as u64;
        // SAFETY: the caller's stack.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), at as *mut u8, bytes.len()) };
        at
    };
    let texts: Vec<u64> = words.texts.iter().map(|text| put(text.as_bytes_with_nul())).collect();
    let (arguments, environment) = texts.split_at(words.arguments);
    let mut all = vec![arguments.len() as u64];
    all.extend(arguments.iter().chain(&[0]).chain(environment).chain(&[0]));
    for (what, value) in &words.told {
        let value = match *what {
            // SAFETY: the system's 16 random bytes.
            told::RANDOM => put(unsafe { &*(*value as *const [u8; 16]) }),
            _ => *value,
        };
        all.extend([*what, value]);
    }
    all.extend([told::NOTHING, 0]);
    let top = (at - all.len() as u64 * 8) & !15;
    // SAFETY: as above; nothing of this life is used any more.
    unsafe {
        ptr::copy_nonoverlapping(all.as_ptr(), top as *mut u64, all.len());
        asm!("mov rsp, {top}", "xor edx, edx", "xor ebp, ebp", "jmp {entry}",
            top = in(reg) top, entry = in(reg) entry, options(noreturn));
    }
}
