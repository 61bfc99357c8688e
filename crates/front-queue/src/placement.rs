//! On which processor a thread runs.

use rustix::thread::{sched_getaffinity, sched_getcpu, sched_setaffinity};

/// Has the calling thread run on another processor than now, if it may run on several; it may still run on
/// all that it could before.
///
/// The kernel wakes a thread on the processor of the one that wakes it, which goes on there: the two then
/// take turns, although another processor is idle, until the kernel looks at its balance some milliseconds
/// later.
pub fn leave_processor() {
    // It is only ever slower where it is: no failure matters.
    let Ok(may) = sched_getaffinity(None) else { return };
    let mut others = may;
    others.unset(sched_getcpu());
    if others.count() > 0 && sched_setaffinity(None, &others).is_ok() {
        let _ = sched_setaffinity(None, &may);
    }
}

#[cfg(test)]
mod tests {
    use rustix::thread::CpuSet;

    use super::*;

    /// Where it runs afterwards is the kernel's to say: it may be moved back at once.
    #[test]
    fn a_thread_that_left_its_processor_may_run_on_as_many_as_before() {
        let may = sched_getaffinity(None).expect("it can be asked");
        leave_processor();
        assert_eq!(sched_getaffinity(None).expect("it can be asked"), may);
        let here = sched_getcpu();
        let mut one = may;
        (0..CpuSet::MAX_CPU).filter(|cpu| *cpu != here).for_each(|cpu| one.unset(cpu));
        sched_setaffinity(None, &one).expect("it is allowed");
        leave_processor();
        assert_eq!(sched_getaffinity(None).expect("it can be asked"), one, "there is no other");
        assert_eq!(sched_getcpu(), here);
        sched_setaffinity(None, &may).expect("they were allowed");
    }
}
