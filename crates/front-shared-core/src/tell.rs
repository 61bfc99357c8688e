//! What a range tells of its device and its file system, and the end of its device's power.

use std::sync::Arc;

use amphi_front_shared::layout::DEAD;
use amphi_front_shared::told;
use amphi_ssd::Ssd;
use amphi_volume::Volume;
use serde_json::{Value, json};

use crate::range;

/// The JSON text of what is asked.
pub(crate) fn tell<V: Volume<Ssd>>(device: &Arc<Ssd>, fs: &V, what: u64, number: u64) -> String {
    let answer = match what {
        told::INFO => json!({ "device": device.info(), "filesystem": fs.about() }),
        told::STATS => {
            let counted = fs.stats();
            let counted = if counted.is_empty() { Value::Null } else { Value::Object(counted) };
            json!({ "device": device.stats(), "filesystem": counted })
        }
        told::POWER_CUT => {
            device.power_cut_and_settle(number);
            if let Some(header) = range::header() {
                header.dead.store(DEAD, std::sync::atomic::Ordering::SeqCst);
            }
            Value::Null
        }
        _ => Value::Null,
    };
    answer.to_string()
}
