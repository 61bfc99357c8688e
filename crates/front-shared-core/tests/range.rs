//! A file system in a range of addresses that several processes share: real processes, each of them this
//! program.
#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "processes run in real time")]

#[path = "range/dying.rs"]
mod dying;
#[path = "range/rig.rs"]
mod rig;
#[path = "range/sharing.rs"]
mod sharing;
#[path = "range/stray.rs"]
mod stray;

/// What this program does when it is started as another process; otherwise nothing.
#[test]
fn another_process() {
    let Ok(role) = std::env::var(rig::ROLE) else { return };
    let words: Vec<&str> = role.split(' ').collect();
    let [name, role, words @ ..] = words.as_slice() else { panic!("a range and a role are needed") };
    let client = amphi_front_shared::Client::connect(name).expect("it lets its owner in");
    match *role {
        "file" => sharing::make_a_file(&client, words),
        "turns" => sharing::take_turns(&client, words),
        "many" => sharing::make_many(&client, words),
        "orphan" => sharing::hold_what_has_no_name(&client),
        "waits" => dying::wait_inside(&client, words),
        "busy" => dying::be_busy(&client, words),
        "cuts" => dying::cut_power(&client),
        "stray" => stray::store_astray(&client, words),
        other => panic!("no such role: {other}"),
    }
}

#[test]
fn what_one_process_does_the_other_sees_at_once() {
    sharing::see_each_other("bytefs", 0);
    sharing::see_each_other("augefs", 1);
}

#[test]
fn a_process_that_dies_inside_ends_the_range() {
    dying::ends_with_who_is_inside(13);
}

#[test]
fn stray_stores_fault_and_harm_nothing_behind_page_protections() {
    stray::nothing_is_harmed(10, amphi_front_shared::Protection::Pages);
}

#[test]
fn stray_stores_fault_and_harm_nothing_behind_a_key() {
    if !amphi_front_shared::keys_are_here() {
        println!("SKIPPED: the processor or the kernel has no protection keys");
        return;
    }
    stray::nothing_is_harmed(11, amphi_front_shared::Protection::Keys);
}
