//! Keys that are not UTF-8: every pattern and command covers them.

use crate::embedded_broker::{EmbeddedStore, Scratch};
use crate::process::{Ended, Running, run};

fn with_key(server: &EmbeddedStore, words: &[&str]) -> Ended {
    run(server.command("mqtt", words).arg("--key-base64"))
}

#[test]
fn key_that_is_not_utf8_is_listed_exported_and_durable() {
    let data = Scratch::new("binary-keys");
    let options = ["--data-dir", data.path(), "--durable-keys", "*"];
    let server = EmbeddedStore::start(&options);
    with_key(&server, &["set", "a/8=", "v"]).version();
    let listed = run(&mut server.command("mqtt", &["keys", "--output", "json"])).json();
    assert_eq!(listed["key_base64"], "a/8=");
    run(&mut server.command("mqtt", &["keys", "k?"])).is(0, "k\\xff\n");
    let exported = run(&mut server.command("mqtt", &["export"]));
    assert!(exported.text().contains("\"key_base64\":\"a/8=\""), "{exported:?}");
    server.store.kill();
    let server = EmbeddedStore::start(&options);
    with_key(&server, &["get", "a/8="]).is(0, "v");
    with_key(&server, &["vdel", "a/8=", "v"]).is(0, "");
    with_key(&server, &["get", "a/8"]).fails(2, &["--key-base64", "not Base64"]);
}

#[test]
fn key_that_is_not_utf8_has_the_maximum_expiry() {
    let server = EmbeddedStore::start(&["--max-expiry", "*=300ms"]);
    let watch = Running::start(&mut server.command("mqtt", &["watch", "/w==", "--key-base64"]));
    assert_eq!(watch.complaint(), "absent");
    assert!(watch.complaint().starts_with("live"));
    with_key(&server, &["set", "/w==", "v"]).version();
    assert_eq!((watch.line(), watch.complaint()), ("v".to_owned(), "deleted".to_owned()));
}
