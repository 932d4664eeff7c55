//! Fencing tokens, by the command and on the wire.

use statestore_tests::raw::{Ask, array, property, unix_ms};

use crate::dialects::order;
use crate::place::{Form, everywhere};

everywhere!(a_lock_protects_a_key, the_table_of_tokens_holds, a_token_from_the_future_is_refused);

fn a_lock_protects_a_key(form: Form) {
    let Some(here) = form.start(&[]) else { return };
    let first = here.run(&["set", "lock", "me", "--nex", "--px", "60s"]).version();
    here.run(&["vdel", "lock", "me"]).is(0, "");
    let second = here.run(&["set", "lock", "you", "--nex", "--px", "60s"]).version();
    here.run(&["set", "valve", "open", "--fencing-token", &second]).version();
    let stale = "lower version than the fencing token protecting the resource";
    here.run(&["set", "valve", "shut", "--fencing-token", &first]).fails(2, &[stale]);
    here.run(&["vdel", "valve", "open", "--fencing-token", &first]).fails(2, &[stale]);
    here.run(&["del", "valve", "--fencing-token", &first]).fails(2, &[stale]);
    let none = "a fencing token is required for this request";
    here.run(&["set", "valve", "shut"]).fails(2, &[none]);
    here.run(&["set", "valve", "shut", "--nx"]).fails(2, &[none]);
    here.run(&["vdel", "valve", "open"]).fails(2, &[none]);
    here.run(&["del", "valve"]).fails(2, &[none]);
    here.run(&["get", "valve"]).is(0, "open");
    here.run(&["vdel", "valve", "open", "--fencing-token", &second]).is(0, "");
    // The token went with the key.
    here.run(&["set", "valve", "shut"]).version();
    here.run(&["del", "valve"]).is(0, "");
}

fn the_table_of_tokens_holds(form: Form) {
    let Some(here) = form.start(&[]) else { return };
    let mut raw = here.raw("raw");
    let stale = &b"-ERR the request fencing token is a lower version than the fencing token protecting the \
                   resource\r\n"[..];
    let missing = &b"-ERR a fencing token is required for this request\r\n"[..];
    // Compared by wall, counter and node, never as text: 9 is before 10, and a before b.
    let [older, stored, newer, newest] = ["9:0:z", "10:9:a", "10:10:a", "10:10:b"];
    for verb in [&b"SET"[..], b"DEL", b"VDEL"] {
        for (fence, token, expected) in [
            (None, None, None),
            (None, Some(older), None),
            (Some(stored), None, Some(missing)),
            (Some(stored), Some(older), Some(stale)),
            (Some(stored), Some("00000010:00009:a"), None),
            (Some(stored), Some(newer), None),
            (Some(newer), Some(stored), Some(stale)),
            (Some(newest), Some(newer), Some(stale)),
        ] {
            let with = |ask: Ask, token: Option<&str>| match token {
                Some(token) => ask.with("__ft", token),
                None => ask,
            };
            let set = Ask::page("raw", array(&[b"SET", b"k", b"v"]));
            assert_eq!(raw.answer(&with(set, fence)), b"+OK\r\n");
            let elements: &[&[u8]] =
                if verb == b"DEL" { &[verb, b"k"] } else { &[verb, b"k", b"v"] };
            let done: &[u8] = if verb == b"SET" { b"+OK\r\n" } else { b":1\r\n" };
            let told = raw.answer(&with(Ask::deployed("raw", array(elements)), token));
            let about = format!("{verb:?} on {fence:?} with {token:?}");
            assert_eq!(told, expected.unwrap_or(done), "{about}");
            // Which token protects the key now: a SET with the one before it tells.
            let left = if expected.is_some() { fence } else { token };
            if verb == b"SET" || expected.is_some() {
                let probe = || Ask::page("raw", array(&[b"VDEL", b"k", b"other"]));
                assert_eq!(raw.answer(&with(probe(), left)), b"-1\r\n", "{about}");
                if left.is_some() {
                    assert_eq!(raw.answer(&with(probe(), Some("1:0:a"))), stale, "{about}");
                }
                let del = Ask::page("raw", array(&[b"DEL", b"k"]));
                assert_eq!(raw.answer(&with(del, left)), b":1\r\n", "{about}");
            }
        }
    }
    // A SET that was not applied stores no token, and reading needs none.
    let set =
        |token: &str| Ask::page("raw", array(&[b"SET", b"k", b"v", b"NX"])).with("__ft", token);
    assert_eq!(raw.answer(&set(stored)), b"+OK\r\n");
    assert_eq!(raw.answer(&set(newest)), b"-1\r\n");
    assert_eq!(raw.answer(&set(stored)), b"-1\r\n");
    assert_eq!(raw.answer(&Ask::page("raw", array(&[b"GET", b"k"]))), b"$1\r\nv\r\n");
    assert_eq!(raw.answer(&Ask::page("raw", array(&[b"KEYNOTIFY", b"k"]))), b"+OK\r\n");
}

fn a_token_from_the_future_is_refused(form: Form) {
    let Some(here) = form.start(&[]) else { return };
    let mut raw = here.raw("raw");
    let set = || Ask::page("raw", array(&[b"SET", b"k", b"v"]));
    let ahead = |ms: u64| format!("{}:0:CLIENT", unix_ms() + ms);
    let too_far = b"-ERR the request fencing token timestamp is too far in the future; ensure that the client and broker \
                    system clocks are synchronized\r\n";
    for elements in [&[&b"SET"[..], b"k", b"v"][..], &[b"DEL", b"k"], &[b"VDEL", b"k", b"v"]] {
        let ask = Ask::page("raw", array(elements)).with("__ft", ahead(70_000));
        assert_eq!(raw.answer(&ask), too_far);
    }
    let first = raw.ask(&set());
    // Within the minute it is accepted, and the version is not lower than it.
    let token = ahead(50_000);
    let second = raw.ask(&set().with("__ft", token.as_str()));
    assert_eq!(second.payload, &b"+OK\r\n"[..]);
    let [first, second] =
        [&first, &second].map(|set| order(property(set, "__ts").expect("a version")));
    let wall: u64 = token.split(':').next().expect("a wall").parse().expect("a number");
    assert!(second > first && second >= (wall, 0), "{second:?} for {token}");
    // The store's clock stays ahead, and goes on.
    let third = raw.ask(&Ask::page("raw", array(&[b"SET", b"other", b"v"])));
    assert!(order(property(&third, "__ts").expect("a version")) > second);
    here.run(&["set", "another", "v"]).version();
    here.run(&["get", "k"]).is(0, "v");
}
