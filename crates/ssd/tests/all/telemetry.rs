//! What a device says about itself: latencies that are the profile's, queue depths, activities, wear.

use amphi_device::{BlockPort, BytePortExt, Completion, Lpa, Structure, TxId, WriteLog};
use amphi_rt::Sim;
use amphi_ssd::{CommandLatency, Profile, Ssd, Stats};

fn profile() -> Profile {
    Profile::named("mssd-pcie3").expect("built in")
}

fn latency<'a>(stats: &'a Stats, command: &str, structure: Option<&str>) -> &'a CommandLatency {
    let of = |latency: &&CommandLatency| latency.command == command && latency.structure == structure;
    stats
        .latencies
        .iter()
        .find(of)
        .unwrap_or_else(|| panic!("no {command} of {structure:?}: {:?}", stats.latencies))
}

/// Quantiles are the ends of buckets, at most an eighth too high.
fn is_about(found: u64, exact: u64) -> bool {
    (exact..=exact + exact / 8).contains(&found)
}

#[test]
fn latencies_are_those_of_the_profile() {
    Sim::new(1).run(|| {
        let ssd = Ssd::in_memory(&profile(), 64 << 20);
        let page = [7; 4096];
        for lpa in 0..100 {
            ssd.persist(Lpa(lpa).byte(64), &[1; 64], TxId::new(1), Structure::Inode).expect("persists");
        }
        ssd.commit(TxId::new(1).expect("one")).expect("commits");
        ssd.write(Lpa(200), &page, Structure::Data).expect("writes");
        amphi_rt::time::sleep_ns(10_000_000);
        let mut into = page;
        ssd.read(Lpa(200), &mut into, Structure::Data).expect("reads");
        let stats = ssd.stats();

        let line = profile().link.line_write_ns;
        let verify = latency(&stats, "verify-read", None);
        assert_eq!(verify.path, "byte");
        assert_eq!((verify.device.count, verify.device.sum_ns), (100, 100 * line));
        assert!(is_about(verify.device.p50_ns, line) && is_about(verify.device.max_ns, line), "{verify:?}");
        assert_eq!(verify.wait.sum_ns, verify.device.sum_ns, "nothing else held the host");
        let commit = profile().firmware.command_cpu_ns + profile().link.command_ns;
        assert_eq!(latency(&stats, "commit", None).device.sum_ns, commit);
        let read = latency(&stats, "read", Some("data"));
        assert!(read.device.sum_ns >= profile().flash.read_ns, "{read:?}");
        let flash =
            stats.flash_latencies.iter().find(|flash| flash.operation == "read").expect("a flash read");
        assert_eq!((flash.cause, flash.device.count), ("host", 1));
        assert!(flash.device.sum_ns >= profile().flash.read_ns && flash.device.sum_ns < read.device.sum_ns);
        assert!(stats.uptime_ns >= 10_000_000);
    });
}

#[test]
fn a_busy_die_shows_in_the_device_time_and_a_late_wait_does_not_hold_the_host() {
    Sim::new(2).run(|| {
        let ssd = Ssd::in_memory(&profile(), 64 << 20);
        ssd.write(Lpa(5), &[1; 4096], Structure::Journal).expect("writes");
        amphi_rt::time::sleep_ns(10_000_000);
        let (mut first, mut second) = ([0; 4096], [0; 4096]);
        let one = ssd.submit_read(Lpa(5), &mut first, Structure::Journal).expect("submits");
        let two = ssd.submit_read(Lpa(5), &mut second, Structure::Journal).expect("submits");
        assert_eq!(ssd.stats().queue.depth, 2);
        amphi_rt::time::sleep_ns(10_000_000);
        one.wait().expect("reads");
        two.wait().expect("reads");
        let stats = ssd.stats();
        let read = latency(&stats, "read", Some("journal"));
        assert_eq!((read.device.count, read.wait.sum_ns), (2, 0), "both had completed long before");
        let (fast, slow) = (read.device.buckets[0].up_to_ns, read.device.max_ns);
        assert!(
            slow >= fast + profile().flash.read_ns * 7 / 8,
            "{fast} and {slow}: the second read queued for the die"
        );
        let queue = &stats.queue;
        assert_eq!((queue.depth, queue.depth_max, queue.submitted, queue.depth_sum), (0, 2, 3, 4));
        assert_eq!(queue.depths, [(1, 2), (2, 1)]);
    });
}

#[test]
fn cleaning_collection_and_waiting_for_them_are_seen() {
    let mut profile = profile();
    profile.flash.channels = 2;
    profile.flash.ways = 2;
    profile.flash.pages_per_block = 16;
    profile.log.region_bytes = 64 << 10;
    Sim::new(3).run(move || {
        let ssd = Ssd::in_memory(&profile, 4 << 20);
        for round in 0..4_u64 {
            for lpa in 0..1024 {
                let lpa = Lpa((lpa * 7 + round) % 1024);
                ssd.write(lpa, &[round as u8; 4096], Structure::Data).expect("writes");
                ssd.persist(lpa.byte(0), &[2; 64], None, Structure::Data).expect("persists");
            }
        }
        ssd.clean_log().expect("cleans");
        let stats = ssd.stats();
        let activity = |name: &str| {
            stats
                .activities
                .iter()
                .find(|activity| activity.activity == name)
                .expect("every activity is listed")
        };
        assert_eq!(activity("log-cleaning").begun, stats.log_cleanings);
        assert_eq!(activity("garbage-collection").begun, stats.gc_runs);
        assert_eq!(activity("waiting-for-block").begun, stats.gc_foreground_runs);
        assert!(activity("log-cleaning").duration.mean_ns > 0.0 && stats.gc_runs > 0);
        assert!(stats.activities.iter().all(|activity| activity.running == 0));
        for (operation, cause) in [("program", "log-cleaning"), ("erase", "garbage-collection")] {
            let found = stats
                .flash_latencies
                .iter()
                .find(|flash| (flash.operation, flash.cause) == (operation, cause));
            assert!(found.is_some(), "{operation} for {cause}: {:?}", stats.flash_latencies);
        }
        let blocks: u64 = stats.erase_counts.iter().map(|bucket| bucket.blocks).sum();
        let mean = stats.blocks_erased as f64 / blocks as f64;
        assert!((stats.erase_count_mean - mean).abs() < 1e-9, "{} and {mean}", stats.erase_count_mean);
        assert!(stats.erase_count_max as f64 >= mean && f64::from(stats.erase_count_min) <= mean);
    });
}

#[test]
fn a_free_device_measures_no_time_but_counts() {
    let ssd = Ssd::in_memory(&Profile::named("free").expect("built in"), 16 << 20);
    ssd.write(Lpa(1), &[1; 4096], Structure::Data).expect("writes");
    let stats = ssd.stats();
    assert!(stats.latencies.is_empty() && stats.flash_latencies.is_empty());
    assert_eq!((stats.queue.submitted, stats.queue.depth, stats.queue.depth_max), (1, 0, 1));
    assert_eq!(stats.block_write.bytes(), 4096);
}
