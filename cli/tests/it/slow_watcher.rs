//! A watcher that does not read its notifications.

use statestore_testkit::wire::raw::{RawRequest, array};

use crate::deployment::{Mode, in_each_mode};
use crate::process::resident_kb;

in_each_mode!(watcher_that_does_not_read_does_not_delay_other_clients);

/// Memory limit of the serving processes in kilobytes. It is far more than they need and far less
/// than the written bytes.
const RESIDENT_MAX: u64 = 40_000;

fn watcher_that_does_not_read_does_not_delay_other_clients(mode: Mode) {
    // This line overrides an earlier one of the same name. With unlimited queues for slow clients,
    // memory would be unbounded.
    let Some(here) = mode.start_with(&[], "max_queued_messages 100") else { return };
    let mut slow = here.raw("slow");
    assert_eq!(slow.answer(&RawRequest::minimal("slow", array(&[b"KEYNOTIFY", b"k"]))), b"+OK\r\n");
    let (mut writer, mut watcher) = (here.raw("writer"), here.raw("watcher"));
    watcher.answer(&RawRequest::minimal("watcher", array(&[b"KEYNOTIFY", b"k"])));
    // The test does not read from the slow client from here on, so its socket fills.
    let mut value = vec![b'v'; 65_000];
    for number in 0..1_000_u32 {
        value[..4].copy_from_slice(&number.to_be_bytes());
        let set = RawRequest::minimal("writer", array(&[b"SET", b"k", &value]));
        assert_eq!(writer.answer(&set), b"+OK\r\n", "{number}");
        let notification = watcher.notification();
        assert!(notification.payload.ends_with(&[&value[..], b"\r\n"].concat()), "{number}");
    }
    for id in here.process_ids() {
        let Some(resident) = resident_kb(id) else { continue };
        assert!(resident < RESIDENT_MAX, "process {id} holds {resident} kB");
    }
    drop(slow);
    assert!(watcher.receives_nothing_more());
    here.run(&["del", "k"]).is(0, "");
}
