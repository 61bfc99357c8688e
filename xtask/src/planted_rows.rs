//! Each row of docs/papers.md has a planted fault, and a test that fails with it: a row that no test can see
//! break is only a claim.
//!
//! `cargo xtask test --only rows` runs each test twice, at once: as it is, when it must pass, and with the
//! fault planted by `AMPHI_PLANTED`, when it must fail. A new row gets a variant in its crate's `planted.rs`
//! and a line in [`FAULTS`]; the lint `paper rows` asks for it.

use std::process::{Child, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::built::Built;
use crate::step::{self, step};
use crate::workers;

/// A fault of one row, and the test that must fail with it.
pub struct Fault {
    /// The row of docs/papers.md.
    pub row: &'static str,
    /// The variant of `Bug` in the crate's `planted.rs`.
    pub bug: &'static str,
    /// The folder below `crates` whose test it is.
    pub room: &'static str,
    /// The folder below `crates` whose bug it is.
    pub planted_in: &'static str,
    /// The file below its `tests` or `tests/all`, without `.rs`. The row names it.
    pub file: &'static str,
    /// The function in it.
    pub test: &'static str,
}

const fn fault(
    row: &'static str,
    bug: &'static str,
    room: &'static str,
    file: &'static str,
    test: &'static str,
) -> Fault {
    Fault { row, bug, room, planted_in: room, file, test }
}

/// A fault of a file system that the crash laboratory's tests see.
const fn fault_of(
    planted_in: &'static str,
    row: &'static str,
    bug: &'static str,
    test: &'static str,
) -> Fault {
    Fault { row, bug, room: "crashlab", planted_in, file: "romefs", test }
}

/// A fault of DevFS that the crash laboratory's tests see.
const fn fault_of_devfs(row: &'static str, bug: &'static str, test: &'static str) -> Fault {
    Fault { row, bug, room: "crashlab", planted_in: "fs-devfs", file: "devfs", test }
}

/// Every planted fault of a row.
pub const FAULTS: &[Fault] = &[
    // It waits for a minute for what the fault prevents: first, beside all others.
    fault(
        "AU-1",
        "DeathInsideOverlooked",
        "front-shared-core",
        "range",
        "a_process_that_dies_inside_ends_the_range",
    ),
    fault(
        "BY-1",
        "VerifyReadReturnsEarly",
        "ssd",
        "power_cuts",
        "nothing_durable_is_lost_and_nothing_open_survives",
    ),
    fault(
        "BY-2",
        "FlashReadAtStore",
        "ssd",
        "pressure",
        "byte_writes_touch_no_flash_and_byte_reads_only_beside_the_log",
    ),
    fault(
        "BY-4",
        "FlashReadAtLogHit",
        "ssd",
        "pressure",
        "byte_writes_touch_no_flash_and_byte_reads_only_beside_the_log",
    ),
    fault(
        "BY-5",
        "StaleEntryAfterBlockWrite",
        "ssd",
        "power_cuts",
        "nothing_durable_is_lost_and_nothing_open_survives",
    ),
    fault("BY-6", "CleaningInForeground", "ssd", "pressure", "no_store_waits_for_a_cleaning"),
    fault(
        "BY-7",
        "CommitNotRecorded",
        "ssd",
        "power_cuts",
        "nothing_durable_is_lost_and_nothing_open_survives",
    ),
    fault("BY-7", "TransactionNumberReused", "fs-bytefs", "crash", "survives_power_cuts"),
    fault("BY-8", "RecoverSkipped", "fs-bytefs", "crash", "survives_power_cuts"),
    fault("BY-9", "BothHalvesWritten", "fs-bytefs", "traffic", "a_change_of_attributes_is_one_line"),
    fault(
        "BY-9",
        "InodePageForgotten",
        "fs-bytefs",
        "traffic",
        "a_miss_of_an_inode_reads_its_page_once_for_all_that_are_in_it",
    ),
    fault("BY-10", "EntriesPadded", "fs-bytefs", "traffic", "names_of_any_length_take_64_to_320_bytes"),
    fault(
        "BY-11",
        "BitmapLineTwice",
        "fs-bytefs",
        "traffic",
        "a_create_is_five_lines_by_bytes_and_one_commit",
    ),
    fault(
        "BY-13",
        "DirectThroughCache",
        "fs-bytefs",
        "traffic",
        "direct_io_up_to_512_bytes_goes_by_bytes_and_more_by_block",
    ),
    fault(
        "BY-14",
        "DuplicatesForgotten",
        "fs-bytefs",
        "traffic",
        "less_than_an_eighth_of_a_page_goes_by_bytes_and_more_by_block",
    ),
    fault(
        "BY-16",
        "CommitBeforeData",
        "fs-bytefs",
        "journal",
        "a_cut_at_every_step_of_a_write_back_leaves_all_or_nothing",
    ),
    fault("BY-17", "EntryOutsideTransaction", "fs-bytefs", "crash", "survives_power_cuts"),
    fault("BY-17", "TimerLeavesGroup", "fs-bytefs", "grouped", "the_interval_makes_operations_durable"),
    fault(
        "BY-18",
        "LogVariantKeepsDuplicates",
        "fs-bytefs",
        "traffic",
        "without_duplicates_a_modified_line_goes_by_block",
    ),
    fault(
        "AU-5",
        "ScanStopsAtGap",
        "lsm",
        "log",
        "tasks_append_beside_each_other_and_every_cut_keeps_what_was_acknowledged_and_nothing_else",
    ),
    fault(
        "TB-1",
        "VerifyReadReturnsEarly",
        "ssd",
        "ba_buffer",
        "buffers_of_64_bytes_drain_in_any_order_until_they_are_synced",
    ),
    fault("TB-2", "PinTableOfEight", "ssd", "ba_buffer", "what_a_pin_cannot_have_is_refused_by_its_reason"),
    fault(
        "TB-3",
        "LastPageNotLoaded",
        "ssd",
        "ba_buffer",
        "pages_that_are_pinned_are_loaded_changed_by_bytes_and_flushed",
    ),
    fault(
        "TB-4",
        "LastPageNotFlushed",
        "ssd",
        "ba_buffer",
        "pages_that_are_pinned_are_loaded_changed_by_bytes_and_flushed",
    ),
    fault(
        "TB-5",
        "SyncWithoutVerify",
        "ssd",
        "ba_buffer",
        "buffers_of_64_bytes_drain_in_any_order_until_they_are_synced",
    ),
    fault(
        "TB-6",
        "EntryInfoShort",
        "ssd",
        "ba_buffer",
        "pages_that_are_pinned_are_loaded_changed_by_bytes_and_flushed",
    ),
    fault(
        "TB-7",
        "DmaFromFlash",
        "ssd",
        "ba_buffer",
        "pages_that_are_pinned_are_loaded_changed_by_bytes_and_flushed",
    ),
    fault(
        "TB-8",
        "LastPageNotGated",
        "ssd",
        "ba_buffer",
        "the_checker_gates_every_page_of_an_entry_and_none_beside_it",
    ),
    fault(
        "TB-9",
        "DumpCutShort",
        "ssd",
        "ba_buffer",
        "a_power_loss_dumps_buffer_and_table_and_power_up_restores_them",
    ),
    fault(
        "TB-9",
        "TableNotRestored",
        "ssd",
        "ba_buffer",
        "a_power_loss_dumps_buffer_and_table_and_power_up_restores_them",
    ),
    fault("TB-11", "InternalPathFree", "ssd", "calibration", "built_in_profiles_meet_what_was_published"),
    fault("TB-12", "SyncForgotten", "wal", "cuts", "a_cut_at_any_command_loses_nothing_acknowledged"),
    fault("TB-12", "FirstHalfNotSynced", "wal", "cuts", "a_cut_at_any_command_loses_nothing_acknowledged"),
    fault("AU-4", "BarrierMissing", "lsm", "store_cuts", "a_cut_at_any_command_loses_nothing_acknowledged"),
    fault(
        "AU-6",
        "BackingForgotten",
        "lsm",
        "store_cuts",
        "a_cut_at_any_command_with_a_small_log_loses_nothing_acknowledged",
    ),
    fault("AU-7", "LogClearedEarly", "lsm", "store_cuts", "a_cut_at_any_command_loses_nothing_acknowledged"),
    fault(
        "BY-3",
        "SkipListEndsEarly",
        "ssd",
        "power_cuts",
        "nothing_durable_is_lost_and_nothing_open_survives",
    ),
    fault(
        "BY-12",
        "ExtentNodeRewritten",
        "fs-bytefs",
        "traffic",
        "an_extent_that_comes_is_a_line_of_its_node",
    ),
    fault(
        "BY-15",
        "DuplicatesForgotten",
        "fs-bytefs",
        "traffic",
        "a_page_written_as_a_whole_goes_by_bytes_only_if_it_is_almost_as_it_was",
    ),
    fault("DV-1", "ReservedNotChecked", "queue", "commands", "malformed_commands_are_refused"),
    fault(
        "TB-10",
        "WriteNotSynced",
        "pins",
        "pins",
        "what_a_write_to_a_pinned_range_returned_from_is_durable",
    ),
    fault("TB-3", "PermissionNotAsked", "pins", "wal", "a_file_of_another_user_is_not_opened"),
    fault(
        "TB-12",
        "SyncOfFileForgotten",
        "pins",
        "wal",
        "a_power_cut_at_any_command_loses_nothing_that_was_acknowledged",
    ),
    fault(
        "TB-13",
        "LogSizeForgotten",
        "pins",
        "logs",
        "a_sync_of_a_log_takes_microseconds_and_touches_neither_flash_nor_journal",
    ),
    fault("RO-1", "BitsLeaked", "fs-romefs", "rows", "metadata_are_in_the_memory_zone_alone"),
    fault(
        "RO-2",
        "CheckpointLineForgotten",
        "fs-romefs",
        "rows",
        "a_checkpoint_brings_what_the_journal_had_to_the_metadata_area",
    ),
    fault(
        "RO-3",
        "SplitForgotten",
        "fs-romefs",
        "rows",
        "aligned_parts_of_a_write_go_by_blocks_and_the_rest_by_bytes",
    ),
    fault_of("fs-romefs", "RO-4", "SubWritesAfterTail", "a_write_counts_as_a_whole_or_not_at_all"),
    fault(
        "RO-5",
        "WriteBackKeepsEntries",
        "fs-romefs",
        "rows",
        "a_leaf_without_a_free_entry_has_its_block_written_back",
    ),
    fault("RO-6", "BlocksAskedAnyway", "fs-romefs", "rows", "what_the_logs_have_in_full_ends_the_search"),
    fault(
        "RO-7",
        "MergeForgetsOld",
        "fs-romefs",
        "rows",
        "logs_that_overlap_are_merged_and_appends_stay_in_their_page",
    ),
    fault(
        "RO-8",
        "WriteBackForgetsLogs",
        "fs-romefs",
        "rows",
        "a_leaf_without_a_free_entry_has_its_block_written_back",
    ),
    fault("RO-9", "CacheForgotten", "fs-romefs", "rows", "what_was_read_by_blocks_is_kept"),
    fault_of("fs-romefs", "RO-10", "RedoSkipped", "recovery_ends_where_the_last_acknowledged_operation_did"),
    fault_of("fs-romefs", "RO-10", "BufferNotFlushed", "a_synced_write_that_was_buffered_is_there"),
    fault("RO-11", "WriteBackForgetsLogs", "fs-romefs", "rows", "a_small_memory_zone_is_enough"),
    fault(
        "DV-1",
        "CommandsAsCalls",
        "fs-devfs",
        "door",
        "programs_commands_go_to_the_device_and_the_kernel_hears_of_them",
    ),
    fault(
        "DV-2",
        "RunsNotJoined",
        "fs-devfs",
        "rows",
        "a_file_that_lies_in_one_piece_is_one_node_of_its_map",
    ),
    fault_of_devfs("DV-3", "PageNotInPlace", "metadata_pages_are_in_place_before_their_journal_is_emptied"),
    fault_of_devfs("DV-4", "RedoOutOfOrder", "changes_are_redone_in_the_order_of_their_time_stamps"),
    fault_of_devfs("DV-5", "QueueForgotten", "what_capacitors_saved_is_brought_in_place"),
    fault("DV-5", "EnergyNotAsked", "fs-devfs", "rows", "no_more_is_accepted_than_capacitors_save"),
    fault("DV-6", "CopyForgotten", "fs-devfs", "rows", "only_without_capacitors_is_anything_written_twice"),
    fault("DV-7", "SealNotCompared", "fs-devfs", "rows", "what_the_host_returns_is_not_trusted"),
    fault(
        "DV-7",
        "StaysWhenClosed",
        "fs-devfs",
        "rows",
        "what_leaves_device_memory_when_a_file_is_closed_is_what_the_mount_says",
    ),
    fault(
        "DV-7",
        "OpenedWithoutEnd",
        "fs-devfs",
        "memory",
        "more_files_than_memory_holds_are_not_opened_and_those_that_are_go_on",
    ),
    fault(
        "DV-8",
        "CredentialKept",
        "fs-devfs",
        "door",
        "what_the_system_takes_back_ends_with_the_next_command",
    ),
    Fault {
        row: "DV-8",
        bug: "CheckedAtOpenOnly",
        room: "fs-devfs",
        planted_in: "queue",
        file: "door",
        test: "every_read_and_write_asks_for_permission",
    },
    fault("DV-9", "ProcessorNotTaken", "fs-devfs", "door", "throughput_grows_with_the_devices_processors"),
    fault(
        "AU-3",
        "LocatorStays",
        "fs-augefs",
        "rows",
        "an_inode_is_found_by_each_of_its_names_and_by_number",
    ),
    fault(
        "AU-8",
        "OneDomain",
        "fs-augefs",
        "rows",
        "files_are_of_different_domains_each_with_segments_of_its_own",
    ),
    fault("AU-8", "SegmentFreeEarly", "fs-augefs", "cuts", "a_cut_at_any_command_loses_nothing_acknowledged"),
    fault("AU-9", "NodesAfterData", "fs-augefs", "rows", "data_and_nodes_are_submitted_together"),
    fault(
        "AU-9",
        "WriteVersionIgnored",
        "fs-augefs",
        "cuts",
        "a_cut_at_any_command_loses_nothing_acknowledged",
    ),
    fault(
        "AU-10",
        "RollForwardForgotten",
        "fs-augefs",
        "cuts",
        "a_cut_at_any_command_loses_nothing_acknowledged",
    ),
    Fault {
        row: "AU-1",
        bug: "OwnCopy",
        room: "front-shared-core",
        planted_in: "front-shared",
        file: "range",
        test: "what_one_process_does_the_other_sees_at_once",
    },
    Fault {
        row: "AU-2",
        bug: "StaysOpen",
        room: "front-shared-core",
        planted_in: "front-shared",
        file: "range",
        test: "stray_stores_fault_and_harm_nothing_behind_page_protections",
    },
    fault(
        "AU-11",
        "HandleUsedAgain",
        "queue",
        "commands",
        "a_closed_handle_does_not_name_the_file_that_has_its_place_now",
    ),
    fault(
        "AU-7",
        "AttributesUncounted",
        "fs-augefs",
        "room",
        "attributes_fill_the_metadata_store_and_deleting_makes_room",
    ),
    fault("AU-11", "PagesForgotten", "fs-augefs", "rows", "what_was_found_or_read_is_not_asked_for_again"),
    fault("AU-11", "NamesForgotten", "fs-augefs", "rows", "what_was_found_or_read_is_not_asked_for_again"),
];

/// What a test came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Passed,
    Failed,
}

/// Runs the test of each fault, without it and with it.
///
/// # Errors
/// A test fails as it is, passes with its fault, or does not run.
pub fn run(built: &Built) -> Result<()> {
    step("rows of the papers", || {
        let verdicts = workers::each(FAULTS, |fault| {
            let start = Instant::now();
            let verdict = judge(built, fault);
            let said = if verdict.is_ok() { "ok" } else { "FAILED" };
            println!("    {said}: {} sees {} ({:.1} s)", fault.row, fault.bug, start.elapsed().as_secs_f64());
            verdict
        })?;
        let bad: Vec<_> =
            verdicts.into_iter().filter_map(Result::err).map(|error| format!("{error:#}")).collect();
        if !bad.is_empty() {
            bail!("{}", bad.join("\n"));
        }
        Ok(())
    })
}

/// Runs a fault's test as it is and with the fault, side by side.
fn judge(built: &Built, fault: &Fault) -> Result<()> {
    let Fault { row, bug, test, .. } = fault;
    let (sound, faulty) = (Running::start(built, fault, None)?, Running::start(built, fault, Some(bug))?);
    if sound.outcome()? == Outcome::Failed {
        bail!("{row}: {test} fails where nothing is planted");
    }
    if faulty.outcome()? == Outcome::Passed {
        bail!("{row}: {test} passes with {bug}: it cannot see the row break");
    }
    Ok(())
}

/// A test that runs.
struct Running {
    line: String,
    child: Child,
}

impl Running {
    /// Starts one test, with a bug planted or with none.
    fn start(built: &Built, fault: &Fault, bug: Option<&str>) -> Result<Self> {
        let mut test = built.one_test(fault.room, fault.file, fault.test)?;
        test.arg("--quiet").stdout(Stdio::piped()).stderr(Stdio::piped());
        test.envs(bug.map(|bug| ("AMPHI_PLANTED", bug)));
        let line = step::command_line(&test);
        let child = test.spawn().with_context(|| format!("`{line}` could not be started"))?;
        Ok(Self { line, child })
    }

    fn outcome(self) -> Result<Outcome> {
        let Self { line, child } = self;
        let output = child.wait_with_output().with_context(|| format!("`{line}` went astray"))?;
        let said = String::from_utf8_lossy(&output.stdout);
        // What finds no test or is killed says neither.
        match (said.contains(" 1 passed; 0 failed"), said.contains(" 0 passed; 1 failed")) {
            (true, false) => Ok(Outcome::Passed),
            (false, true) => Ok(Outcome::Failed),
            _ => bail!("`{line}` ran no test: {said}{}", String::from_utf8_lossy(&output.stderr)),
        }
    }
}
