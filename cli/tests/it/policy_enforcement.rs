//! `serve --policy`: enforcement, reload and ineffective settings. Password prompts on a terminal.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::process::Command;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use statestore_testkit::credentials::Certificates;
use statestore_testkit::credentials::tokens::{Claims, ISSUER, Issuer, key_set};

use statestore_testkit::wire::packets::Reason;
use statestore_testkit::wire::raw::{Raw, RawRequest, words};

use crate::embedded_broker::{EmbeddedStore, Scratch};
use crate::process::{Ended, Running, run, run_with_input, statestore};

const POLICY: &str = r#"rules:
  - principals: {usernames: ["*"]}
    brokerResources:
      - method: Connect
      - method: Publish
        topics: ["statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8/command/invoke"]
      - method: Subscribe
        topics: ["clients/{principal.clientId}/#", "clients/statestore/+/+/+/command/notify/+"]
    stateStoreResources:
      - {method: ReadWrite, keys: ["private/{principal.username}/*"]}
      - {method: Read, keys: ["shared/*"]}
"#;

fn as_user(server: &EmbeddedStore, user: &str, arguments: &[&str]) -> Ended {
    let mut command: Command = server.command("mqtt", arguments);
    run(command.args(["--user", user]).env("STATESTORE_PASSWORD", "secret"))
}

#[test]
fn policy_is_enforced_and_reloaded() {
    let (users, policy) = (Scratch::new("enforced-users"), Scratch::new("enforced.yaml"));
    for user in ["ann", "bob"] {
        run_with_input(statestore().args(["passwd", users.path(), user]), b"secret\n").is(0, "");
    }
    fs::write(policy.path(), POLICY).unwrap();
    let server =
        EmbeddedStore::start(&["--password-file", users.path(), "--policy", policy.path()]);
    as_user(&server, "ann", &["set", "private/ann/k", "v"]).version();
    as_user(&server, "ann", &["get", "private/ann/k"]).is(0, "v");
    as_user(&server, "bob", &["get", "private/ann/k"])
        .fails(2, &["not authorized; `statestore policy explain` shows"]);
    as_user(&server, "bob", &["set", "shared/k", "v"]).fails(2, &["not authorized"]);
    as_user(&server, "bob", &["keys", "**"]).is(1, "");
    as_user(&server, "bob", &["get", "shared/k", "--client-id", "ann"]).fails(2, &["--client-id"]);

    fs::write(policy.path(), POLICY.replace("method: Read,", "method: ReadWrite,")).unwrap();
    server.store.signal("-HUP");
    let until = |part: &str| while !server.store.complaint().contains(part) {};
    until("read again: 2 users");
    until("read again: 1 rule");
    as_user(&server, "bob", &["set", "shared/k", "v"]).version();
    fs::write(policy.path(), "rules: [{}]").unwrap();
    server.store.signal("-HUP");
    until("lacks `principals`; name the clients it applies to");
    as_user(&server, "bob", &["set", "shared/k", "w"]).version();
}

/// A token in the future would exclude clients that write a shared key without a token.
#[test]
fn client_without_fence_permission_writes_without_a_token() {
    let policy = Scratch::new("fences.yaml");
    let document = POLICY.replace("usernames: [\"*\"]", "clientIds: [ann, bob]").replace(
        "method: Read, keys: [\"shared/*\"]}",
        "method: ReadWrite, keys: [\"shared/*\"]}\n  - principals: {clientIds: [bob]}\n    \
         stateStoreResources:\n      - {method: Fence, keys: [\"shared/*\"]}",
    );
    fs::write(policy.path(), document).unwrap();
    let server = EmbeddedStore::start(&["--policy", policy.path()]);
    let as_client = |client: &str, arguments: &[&str]| {
        run(server.command("mqtt", arguments).args(["--client-id", client]))
    };
    let token = as_client("ann", &["set", "shared/k", "v"]).version();
    let fenced = ["set", "shared/k", "w", "--fencing-token", &token];
    as_client("ann", &fenced).fails(2, &["not authorized"]);
    as_client("ann", &["set", "shared/k", "w"]).version();
    as_client("bob", &fenced).version();
    as_client("ann", &["set", "shared/k", "x"]).fails(2, &["a fencing token is required"]);
    as_client("ann", &["del", "shared/k", "--fencing-token", &token]).fails(2, &["not authorized"]);
    let path = policy.path();
    let explain = |client: &str| {
        run(statestore().args([
            "policy",
            "explain",
            path,
            "fence",
            "shared/k",
            "--client-id",
            client,
        ]))
    };
    explain("bob").is(0, "allowed by line 14 (rule 2, resource 1 of stateStoreResources)\n");
    explain("ann").is(
        1,
        "refused; line 11 (rule 1, resource 2 of stateStoreResources) has this key with another \
                method\n\
                if a rule has the method Fence, a write with a fencing token requires Write and \
                Fence\n",
    );
}

/// A client that a new policy disconnects receives the reason.
#[test]
fn client_disconnected_by_a_policy_receives_the_reason() {
    let policy = Scratch::new("replaced.yaml");
    let own_rules = POLICY.replace("usernames: [\"*\"]", "clientIds: [ann]");
    fs::write(policy.path(), &own_rules).unwrap();
    let server = EmbeddedStore::start(&["--policy", policy.path()]);
    let watch = server.command("mqtt", &["watch", "shared/k", "--client-id", "ann"]);
    let watch = Running::start({ watch }.env_remove("STATESTORE_LOG"));
    while !watch.complaint().contains("live") {}
    fs::write(policy.path(), own_rules.replace("shared/*", "none/*")).unwrap();
    server.store.signal("-HUP");
    let gap = watch.complaint();
    assert!(
        gap.contains("gap: ") && gap.contains("disconnected by the broker: not authorized (0x87)"),
        "{gap}"
    );
    let ended = watch.end();
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.err.contains("not authorized; `statestore policy explain`"), "{ended:?}");
}

/// A refusal by the policy does not break a rule of the protocol.
#[test]
fn verify_skips_rules_whose_requests_the_policy_refuses() {
    let policy = Scratch::new("verified.yaml");
    fs::write(policy.path(), POLICY.replace("usernames: [\"*\"]", "clientIds: [\"*\"]")).unwrap();
    let server = EmbeddedStore::start(&["--policy", policy.path()]);
    let mut verify = server.command("mqtt", &["verify", "--rule", "value", "--rule", "fence"]);
    let ended = run(&mut verify);
    let reason = "rules were not checked: a policy refuses their requests; allow this client";
    assert!(ended.code == Some(2) && ended.err.contains(reason), "{ended:?}");
    let lines: Vec<&str> = ended.text().lines().take_while(|line| !line.is_empty()).collect();
    let refused =
        lines.iter().filter(|line| line.starts_with("skipped  ") && line.contains("not authorize"));
    assert_eq!((refused.count(), lines.len() > 10), (lines.len(), true), "{lines:#?}");
    assert!(ended.text().contains("left: 0"), "{ended:?}");
}

/// Each refused operation is logged on one line with its client.
#[test]
fn policy_refusals_are_logged() {
    let policy = Scratch::new("logged.yaml");
    fs::write(policy.path(), POLICY.replace("usernames: [\"*\"]", "clientIds: [ann, eve]"))
        .unwrap();
    let server = EmbeddedStore::start(&["--policy", policy.path()]);
    let until = |part: &str| loop {
        let line = server.store.complaint();
        if line.contains(part) {
            break line;
        }
    };
    let mut raw = Raw::connect(server.port, "eve");
    raw.subscribe("private/\u{202e}/#");
    let line = until("subscription rejected: not authorized");
    assert!(line.contains("client_id=\"eve\"") && line.contains("topic=\"private/"), "{line}");
    assert!(!line.contains('\u{202e}'), "{line:?}");
    let mut ask = RawRequest::deployed("eve", words(&["GET", "shared/k"]));
    ask.response_topic = Some("clients/ann/response".into());
    assert_eq!(raw.put(&ask), Some(Reason::NOT_AUTHORIZED));
    let line = until("message rejected: not authorized");
    assert!(
        line.contains("client_id=\"eve\"") && line.contains("\"clients/ann/response\""),
        "{line}"
    );
}

/// Without notifications a watch never begins, so the command must report the refusal.
#[test]
fn watch_without_permission_reports_the_refusal() {
    let policy = Scratch::new("deaf.yaml");
    let deaf = POLICY.replace(", \"clients/statestore/+/+/+/command/notify/+\"", "");
    fs::write(
        policy.path(),
        deaf.replace("usernames", "clientIds").replace("username", "clientId"),
    )
    .unwrap();
    let server = EmbeddedStore::start(&["--policy", policy.path()]);
    let mut watch = statestore();
    watch.args(["watch", "shared/k", "--client-id", "ann", "--timeout", "3s", "--broker"]);
    let watch = Running::start(watch.arg(format!("mqtt://127.0.0.1:{}", server.port)));
    let complaint = watch.complaint();
    assert!(complaint.contains("not watching yet"), "{complaint}");
    watch.kill();
    let broker = format!("mqtt://127.0.0.1:{}", server.port);
    let elect = ["elect", "shared/k", "--client-id", "ann", "--timeout", "3s", "--broker", &broker];
    run(statestore().args(elect))
        .fails(2, &["sends no notifications of this election", "notify/+"]);
}

#[test]
fn ineffective_policy_settings_are_rejected() {
    let policy = Scratch::new("refused.yaml");
    fs::write(policy.path(), POLICY).unwrap();
    let serve = |options: &[&str]| run(statestore().arg("serve").args(options));
    serve(&["--listen", "0.0.0.0:0"]).fails(2, &["--listen", "policy", "allow-anonymous"]);
    let external = ["--broker", "mqtt://127.0.0.1:1", "--policy", policy.path()];
    serve(&external).fails(2, &["trust-claimed-ids"]);
    serve(&["--policy", "/nowhere"]).fails(2, &["/nowhere"]);
    serve(&["--listen", "127.0.0.1:0", "--trust-claimed-ids"]).fails(2, &["requires policy"]);
}

/// Types lines on a terminal. Returns the result and the text on the terminal.
fn typed(file: &Scratch, lines: &[&str]) -> (Ended, String) {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap().into_string().unwrap();
    let theirs = File::options().read(true).write(true).open(&name).unwrap();
    let mut keyboard = File::from(terminal);
    let mut command = statestore();
    command.args(["passwd", file.path(), "ann"]).stdin(theirs.try_clone().unwrap());
    let child = command.stderr(theirs).stdout(std::process::Stdio::piped()).spawn().unwrap();
    drop(command);
    let mut shown = String::new();
    let mut space = [0; 1_000];
    for line in lines {
        // Input before the prompt would be echoed.
        while !shown.ends_with(": ") {
            let count = keyboard.read(&mut space).unwrap();
            shown.push_str(std::str::from_utf8(&space[..count]).unwrap());
        }
        shown.push('>');
        keyboard.write_all(line.as_bytes()).unwrap();
        keyboard.write_all(b"\n").unwrap();
    }
    while let Ok(count @ 1..) = keyboard.read(&mut space) {
        shown.push_str(std::str::from_utf8(&space[..count]).unwrap());
    }
    let output = child.wait_with_output().unwrap();
    (Ended { code: output.status.code(), out: output.stdout, err: shown.clone() }, shown)
}

#[test]
fn password_prompt_does_not_echo() {
    let file = Scratch::new("terminal-users");
    let (ended, shown) = typed(&file, &["one", "two"]);
    assert_eq!(ended.code, Some(2));
    assert!(shown.contains("the passwords differ") && !shown.contains("one"), "{shown}");
    assert!(!fs::exists(file.path()).unwrap());
    let (ended, shown) = typed(&file, &["secret", "secret"]);
    assert_eq!((ended.code, shown.contains("secret")), (Some(0), false), "{shown}");
    assert!(fs::read_to_string(file.path()).unwrap().starts_with("ann:$argon2"));
}

#[test]
fn certificates_are_users_with_attributes() {
    let Some(made) = Certificates::make("certificates_are_users_with_attributes") else { return };
    made.make_client("ann", "/CN=ann", "", "ca");
    let path = |name: &str| made.path(name).to_str().expect("text").to_owned();
    let (policy, table) = (Scratch::new("certified.yaml"), Scratch::new("attributes.yaml"));
    let text = POLICY.replace("usernames: [\"*\"]", "attributes: [{site: home}]");
    fs::write(policy.path(), text).unwrap();
    let attributes = |site: &str| {
        let entry = format!("{{subject: CN=ca, attributes: {{site: {site}}}}}");
        fs::write(table.path(), format!("authorizationAttributes: {{ours: {entry}}}")).unwrap();
    };
    attributes("home");
    let (cert, key, ca) = (path("broker.pem"), path("broker.key"), path("ca.pem"));
    let tls = ["--listen-tls-cert", &cert, "--listen-tls-key", &key, "--listen-tls-client-ca", &ca];
    let users = ["--certificate-user", "cn", "--certificate-attributes", table.path()];
    let server = EmbeddedStore::start(&[&tls[..], &users, &["--policy", policy.path()]].concat());
    let client = |arguments: &[&str]| {
        let identity =
            ["--tls-ca", &ca, "--tls-cert", &path("ann.pem"), "--tls-key", &path("ann.key")];
        run(&mut server.command("mqtts", &[arguments, &identity[..]].concat()))
    };
    client(&["set", "private/ann/k", "v", "--user", "ann"]).version();
    client(&["get", "private/bob/k", "--client-id", "ann"]).fails(2, &["not authorized"]);
    client(&["get", "k", "--user", "bob"]).fails(2, &["refused"]);
    client(&["get", "k", "--client-id", "bob"]).fails(2, &["--client-id"]);
    attributes("away");
    server.store.signal("-HUP");
    while !server.store.complaint().contains("attributes of 1 subject") {}
    client(&["get", "private/ann/k", "--user", "ann"]).fails(2, &["refused"]);
    fs::write(table.path(), "authorizationAttributes: {ours: {subject: ann}}").unwrap();
    server.store.signal("-HUP");
    while !server.store.complaint().contains("nothing has changed") {}
    let mut serve = statestore();
    serve.args(["serve", "--listen-tls", "127.0.0.1:0"]).args(tls).args(users);
    run(&mut serve).fails(2, &[table.path(), "line 1", "attributes"]);
}

#[test]
fn service_accounts_log_in_with_tokens() {
    let (issuer, other) = (Issuer::p256("k"), Issuer::p256("other"));
    let (keys, token) = (Scratch::new("keys.json"), Scratch::new("token"));
    let policy = Scratch::new("accounts.yaml");
    let text = POLICY.replace("usernames: [\"*\"]", "attributes: [{namespace: home}]");
    let text = text.replace("{principal.username}", "{principal.attributes.serviceAccount}");
    fs::write(policy.path(), text).unwrap();
    fs::write(keys.path(), key_set(&[&issuer])).unwrap();
    let from = ["--service-account-keys", keys.path(), "--service-account-issuer", ISSUER];
    let server = EmbeddedStore::start(&[&from[..], &["--policy", policy.path()]].concat());
    let user = "system:serviceaccount:home:door";
    let client = |arguments: &[&str]| {
        let by = ["--service-account-token-file", token.path(), "--user", user];
        run(&mut server.command("mqtt", &[arguments, &by[..]].concat()))
    };
    client(&["get", "k"]).fails(2, &[token.path()]);
    fs::write(token.path(), "\n").unwrap();
    client(&["get", "k"]).fails(2, &[token.path(), "no token"]);
    let claims = Claims::of("home", "door");
    fs::write(token.path(), issuer.token(&claims) + "\n").unwrap();
    client(&["set", "private/door/k", "v"]).version();
    client(&["get", "private/door/k"]).is(0, "v");
    client(&["get", "private/window/k"]).fails(2, &["not authorized"]);
    client(&["get", "k", "--client-id", "door"]).fails(2, &["--client-id"]);
    client(&["verify"]).fails(2, &["verify does not support tokens"]);
    fs::write(token.path(), issuer.token(&Claims::of("away", "door"))).unwrap();
    client(&["get", "private/door/k"]).fails(2, &["refused"]);
    fs::write(token.path(), other.token(&claims)).unwrap();
    client(&["get", "private/door/k"]).fails(2, &["refused"]);
    fs::write(keys.path(), key_set(&[&issuer, &other])).unwrap();
    server.store.signal("-HUP");
    while !server.store.complaint().contains("read again: 2 keys") {}
    client(&["get", "private/door/k"]).is(0, "v");
    fs::write(keys.path(), "{}").unwrap();
    server.store.signal("-HUP");
    while !server.store.complaint().contains("nothing has changed") {}
    client(&["get", "private/door/k"]).is(0, "v");
    let mut serve = statestore();
    run(serve.args(["serve", "--listen", "127.0.0.1:0"]).args(from))
        .fails(2, &[keys.path(), "kubectl"]);
}
