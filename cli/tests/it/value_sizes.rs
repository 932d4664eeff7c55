//! Minimum and maximum sizes of keys and values.

use statestore_testkit::wire::raw::{RawRequest, array, blob, notification_topic};

use crate::deployment::{Mode, in_each_mode};

in_each_mode!(
    long_binary_keys_and_values_are_returned_unchanged,
    oversized_packet_does_not_affect_other_clients
);

fn long_binary_keys_and_values_are_returned_unchanged(mode: Mode) {
    let Some(here) = mode.start(&[]) else { return };
    let (mut raw, mut watcher) = (here.raw("raw"), here.raw("watcher"));
    let bytes: Vec<u8> = (0..=255).cycle().take(1_000_000).collect();
    for key_bytes in [1, 2, 255, 256, 6_500, 32_000] {
        let key = &bytes[7..7 + key_bytes];
        assert_eq!(
            watcher.answer(&RawRequest::minimal("watcher", array(&[b"KEYNOTIFY", key]))),
            b"+OK\r\n"
        );
        for value_bytes in [0, 1, 127, 128, 16_383, 16_384, 65_000, 1_000_000] {
            let value = &bytes[..value_bytes];
            let set = array(&[b"SET", key, value]);
            assert_eq!(raw.answer(&RawRequest::deployed("raw", set)), b"+OK\r\n");
            let found = raw.answer(&RawRequest::deployed("raw", array(&[b"GET", key])));
            assert!(found == blob(value), "{key_bytes} and {value_bytes} bytes");
            let notification = watcher.notification();
            assert_eq!(notification.topic, notification_topic("watcher", Some(key)).as_bytes());
            assert!(notification.payload == array(&[b"NOTIFY", b"SET", b"VALUE", value]));
        }
        let vdel = array(&[b"VDEL", key, &bytes]);
        assert_eq!(raw.answer(&RawRequest::deployed("raw", vdel)), b":1\r\n");
        assert_eq!(watcher.notification().payload, array(&[b"NOTIFY", b"DEL"]));
    }
}

fn oversized_packet_does_not_affect_other_clients(mode: Mode) {
    let Some(here) = mode.start(&[]) else { return };
    let mut raw = here.raw("raw");
    let long = vec![b'k'; 33_000];
    let set = raw.answer(&RawRequest::minimal("raw", array(&[b"SET", &long, b"v"])));
    assert_eq!(set, b"-ERR the quota has been exceeded\r\n");
    assert_eq!(raw.answer(&RawRequest::minimal("raw", array(&[b"GET", &long]))), b"$-1\r\n");
    let watch = raw.answer(&RawRequest::minimal("raw", array(&[b"KEYNOTIFY", &long])));
    assert_eq!(watch, b"-ERR the quota has been exceeded\r\n");
    // The packet exceeds the store's limit. The broker drops it or closes the connection of its
    // sender.
    let mut giant = here.raw("giant");
    giant.send(&RawRequest::minimal("giant", array(&[b"SET", b"k", &vec![0; 3_000_000]])));
    drop(giant);
    assert_eq!(raw.answer(&RawRequest::minimal("raw", array(&[b"SET", b"k", b"v"]))), b"+OK\r\n");
    here.run(&["get", "k"]).is(0, "v");
}
