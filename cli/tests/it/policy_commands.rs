//! `policy`: checks, tests and explanations of policies.

use std::fs;
use std::path::PathBuf;

use crate::process::{run, statestore};

const POLICY: &str = r#"rules:
  - principals:
      usernames: ["*"]
    brokerResources:
      - method: Connect
      - method: Publish
        topics: ["statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8/command/invoke"]
      - {method: Subscribe, topics: ["clients/#"]}
    stateStoreResources:
      - method: ReadWrite
        keys: ["private/{principal.username}/*"]
"#;

fn written(name: &str, text: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("statestore-{}-{name}", std::process::id()));
    fs::write(&path, text).unwrap();
    path
}

/// Operators start with this policy.
#[test]
fn documented_policy_has_no_warnings() {
    let page = include_str!("../../../docs/authorization.md");
    let (_, rest) = page.split_once("```yaml\nrules:").unwrap();
    let (policy, _) = rest.split_once("```").unwrap();
    let file = written("documented.yaml", &format!("rules:{policy}"));
    run(statestore().args(["policy", "check"]).arg(&file)).is(0, "2 rules, 0 warnings\n");
    fs::remove_file(file).unwrap();
}

#[test]
fn policy_is_checked_tested_and_explained() {
    let policy = written("policy.yaml", POLICY);
    let path = policy.to_str().unwrap();
    let run = |args: &[&str]| run(statestore().arg("policy").args(args));
    run(&["check", path]).is(0, "1 rule, 0 warnings\n");
    let table = "allow user=ann SET private/ann/note\ndeny user=ann GET private/bob/note\n";
    let cases = written("cases", table);
    run(&["test", path, cases.to_str().unwrap()]).is(0, "2 cases, 0 differ\n");
    let wrong = written("wrong", &table.replace("deny", "allow"));
    let ended = run(&["test", path, wrong.to_str().unwrap()]);
    assert_eq!(ended.code, Some(1));
    assert!(
        ended.text().contains("line 2: allow was expected; by")
            && ended.text().contains("1 differ")
    );

    let ann = ["--user", "ann", "--client-id", "ann-1"];
    let explain = |rest: &[&str]| run(&[&["explain", path], &ann[..], rest].concat());
    explain(&["set", "private/ann/x"])
        .is(0, "allowed by line 10 (rule 1, resource 1 of stateStoreResources)\n");
    let ended = explain(&["GET", "private/bob/x"]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.text().ends_with("allows it for other keys\n"), "{ended:?}");
    // A key alone is useless without the topics of requests and responses.
    let silent = written("silent.yaml", &POLICY.replace("clients/#", "news/#"));
    let set = ["set", "private/ann/x", "--user", "ann", "--client-id", "ann-1"];
    let ended = run(&[&["explain", silent.to_str().unwrap()], &set[..]].concat());
    assert_eq!(ended.code, Some(1));
    let missing = "but a request also requires SUBSCRIBE clients/ann-1/";
    assert!(ended.text().contains(missing), "{ended:?}");
    fs::remove_file(silent).unwrap();
    let anonymous = run(&["explain", path, "set", "private/ann/x"]);
    assert_eq!(anonymous.code, Some(1));
    assert!(anonymous.text().contains("give --client-id, --user or --attribute"), "{anonymous:?}");
    explain(&["connect"]).is(0, "allowed by line 5 (rule 1, resource 1 of brokerResources)\n");
    explain(&["connect", "x"]).fails(2, &["--client-id"]);
    explain(&["get"]).fails(2, &["key"]);
    for (verb, topic, problem) in [
        ("subscribe", "a/#/b", "not a topic filter"),
        ("subscribe", "a+", "not a topic filter"),
        ("subscribe", "$share/group/a", "the filter after $share"),
        ("publish", "a/+", "not a topic to publish to"),
    ] {
        explain(&[verb, topic]).fails(2, &[topic, problem]);
    }

    // The broker rejects these with every policy.
    for (user, verb, topic) in [
        ("ann", "publish", "clients/statestore/v1/x"),
        ("ann", "subscribe", "statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8/command/invoke"),
    ] {
        let ended = run(&["explain", path, "--user", user, "--client-id", "ann-1", verb, topic]);
        assert_eq!(ended.code, Some(1), "{topic}");
        assert!(ended.text().contains("refuses it with every policy: only the store"), "{ended:?}");
    }
    let ended = run(&["explain", path, "--user", "ann", "--client-id", "ann-/x", "connect"]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.text().contains("rejects client ids that contain /"), "{ended:?}");

    let bad = written("bad.yaml", &POLICY.replace("ReadWrite", "Fetch"));
    run(&["check", bad.to_str().unwrap()])
        .fails(2, &["line 10", "stateStoreResources[1].method", "Read, Write, ReadWrite"]);
    run(&["check", "/nowhere"]).fails(2, &["/nowhere"]);
    let wide = written("wide.yaml", &POLICY.replace("private/{principal.username}/*", "*"));
    let ended = run(&["check", wide.to_str().unwrap()]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.text().contains("line 10: a pattern of keys matches everything"), "{ended:?}");
    for file in [policy, cases, wrong, bad, wide] {
        fs::remove_file(file).unwrap();
    }
}
