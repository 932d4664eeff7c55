//! Output at a terminal, which differs from redirected output.

use crate::embedded_broker::EmbeddedStore;
use crate::process::{Running, run};
use crate::terminal::Terminal;

fn at_terminal(server: &EmbeddedStore, arguments: &[&str]) -> (Option<i32>, String) {
    Terminal::start(&server.command("mqtt", arguments)).output()
}

#[test]
fn get_ends_with_one_newline_at_a_terminal_only() {
    let server = EmbeddedStore::start(&[]);
    for (value, shown) in [
        ("v", "v\r\n"),
        ("v\n", "v\r\n"),
        ("", "\r\n"),
        ("a\tb\nc", "a\tb\r\nc\r\n"),
        ("\x1b]0;title\x07\u{9b}", "\\u001b]0;title\\u0007\\u009b\r\n"),
    ] {
        run(&mut server.command("mqtt", &["set", "k", value])).version();
        assert_eq!(at_terminal(&server, &["get", "k"]), (Some(0), shown.to_owned()), "{value:?}");
        run(&mut server.command("mqtt", &["get", "k"])).is(0, value);
    }
}

#[test]
fn negative_results_are_printed_at_a_terminal_only() {
    let server = EmbeddedStore::start(&[]);
    run(&mut server.command("mqtt", &["set", "k", "v"])).version();
    for (line, text) in [
        ("get none", "absent"),
        ("del none", "absent"),
        ("rm none", "absent"),
        ("vdel none v", "absent"),
        ("vdel k other", "not applied: the key has another value"),
        ("set k other --nx", "not applied: the key exists"),
        ("put k other --nex", "not applied: the key has another value"),
    ] {
        let arguments: Vec<&str> = line.split(' ').collect();
        let shown = at_terminal(&server, &arguments);
        assert_eq!(shown, (Some(1), format!("{text}\r\n")), "{line}");
        let ended = run(&mut server.command("mqtt", &arguments));
        assert_eq!((ended.code, ended.text(), &*ended.err), (Some(1), "", ""), "{line}");
    }
    run(&mut server.command("mqtt", &["get", "k"])).is(0, "v");
}

#[test]
fn watch_warns_that_a_pattern_is_one_key() {
    let server = EmbeddedStore::start(&[]);
    let watch = Running::start(&mut server.command("mqtt", &["watch", "rooms/*"]));
    let warning = watch.complaint();
    for part in ["one key", "rooms/*", "--pattern"] {
        assert!(warning.contains(part), "{warning}");
    }
    assert_eq!(watch.complaint(), "absent");
    watch.signal("-INT");
    assert_eq!(watch.end().code, Some(0));
}
