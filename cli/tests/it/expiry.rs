//! Values that end by themselves.

use statestore_tests::raw::{Ask, array, property};

use crate::place::{Form, everywhere};

everywhere!(watchers_hear_of_an_expiry, an_expiry_frees_a_lock_and_its_place);

fn watchers_hear_of_an_expiry(form: Form) {
    let Some(here) = form.start(&[]) else { return };
    let mut raw = here.raw("raw");
    let ask = |elements: &[&[u8]]| Ask::page("raw", array(elements));
    raw.answer(&ask(&[b"KEYNOTIFY", b"k"]));
    let set = raw.ask(&ask(&[b"SET", b"k", b"v", b"PX", b"50"]));
    let version = property(&set, "__ts").expect("a version").to_owned();
    assert_eq!(raw.answer(&ask(&[b"GET", b"k"])), b"$1\r\nv\r\n");
    assert_eq!(raw.notification().payload, array(&[b"NOTIFY", b"SET", b"VALUE", b"v"]));
    let gone = raw.notification();
    assert_eq!(gone.payload, array(&[b"NOTIFY", b"DEL"]));
    assert_eq!(property(&gone, "__ts"), Some(version.as_str()), "the version that expired");
    assert_eq!(raw.answer(&ask(&[b"GET", b"k"])), b"$-1\r\n");
    assert_eq!(raw.answer(&ask(&[b"DEL", b"k"])), b":0\r\n");
    // A SET without PX ends the expiry of the value before, so only the other key goes.
    raw.answer(&ask(&[b"KEYNOTIFY", b"other"]));
    raw.answer(&ask(&[b"SET", b"k", b"v", b"PX", b"30"]));
    raw.answer(&ask(&[b"SET", b"k", b"stays"]));
    raw.answer(&ask(&[b"SET", b"other", b"v", b"PX", b"60"]));
    for value in ["v", "stays", "v"] {
        let expected = array(&[b"NOTIFY", b"SET", b"VALUE", value.as_bytes()]);
        assert_eq!(raw.notification().payload, expected);
    }
    let gone = raw.notification();
    assert!(gone.topic.ends_with(b"/6F74686572"), "{gone:?}");
    assert_eq!(raw.answer(&ask(&[b"GET", b"k"])), b"$5\r\nstays\r\n");
    assert!(raw.hears_nothing_more());
}

fn an_expiry_frees_a_lock_and_its_place(form: Form) {
    let Some(here) = form.start(&["--max-keys", "1"]) else { return };
    let token = here.run(&["set", "lock", "me", "--nex", "--px", "300ms"]).version();
    let watch = here.spawn(&["watch", "lock", "--output", "json", "--count", "2"]);
    assert_eq!(watch.json()["value"], "me");
    here.run(&["set", "lock", "you", "--nex"]).is(1, "");
    let mut last = watch.json();
    while last["result"] == "live" {
        last = watch.json();
    }
    assert_eq!(last["result"], "deleted");
    assert_eq!(last["version"], token.as_str());
    assert_eq!(watch.end().code, Some(0));
    here.run(&["get", "lock"]).is(1, "");
    here.run(&["set", "another", "v", "--nx"]).version();
    here.run(&["set", "lock", "you", "--nex"]).fails(2, &["quota"]);
}
