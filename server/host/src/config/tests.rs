use std::collections::BTreeSet;

use super::*;

fn error(text: &str) -> String {
    let config = Config::from_toml(text);
    config.and_then(|config| config.check()).unwrap_err().to_string()
}

#[test]
fn default_is_an_embedded_broker() {
    assert_eq!(Config::default().mode().unwrap(), Mode::EmbeddedBroker);
    assert_eq!(Config::from_toml("").unwrap(), Config::default());
}

#[test]
fn serialized_configuration_is_read_again() {
    let text = "[listen]\nlisten = [\"0.0.0.0:0\"]\n[limits]\nmax-clock-drift = \"7s\"\n[storage]\n\
                data-dir = \"/d\"\ndurable = \"all\"\n[reload]\nwatch-files = \"10s\"\n";
    let config = Config::from_toml(text).unwrap();
    assert_eq!(config.limits.max_clock_drift.as_secs(), 7);
    let again = toml::to_string(&config).unwrap();
    assert_eq!(Config::from_toml(&again).unwrap(), config, "{again}");
}

#[test]
fn password_is_not_shown() {
    let text = "[broker]\nbroker = [\"mqtt://h\"]\nuser = \"ann\"\npassword = \"secret\"\n";
    let config = Config::from_toml(text).unwrap();
    assert!(config.check().is_ok());
    assert_eq!(config.broker.password.as_ref().map(Secret::expose), Some("secret"));
    let shown = format!("{config:?} {}", toml::to_string(&config).unwrap());
    assert!(!shown.contains("secret") && shown.contains("(hidden)"), "{shown}");
}

#[test]
fn error_of_an_unquoted_password_does_not_contain_it() {
    let error = |password: &str| {
        let text = format!("[broker]\nuser = \"ann\"\npassword = {password}\n");
        let error = Config::from_toml(&text).unwrap_err().to_string();
        assert!(error.contains("line ") && !error.contains("9876"), "{password}: {error}");
        error
    };
    for password in ["98765432109", "-9876", "9876.5432109", "9876e10", "true"] {
        let error = error(password);
        assert!(error.contains("line 3: ") && error.contains("in quotes"), "{error}");
        assert!(!error.contains(password), "{error}");
    }
    for password in [
        "9223372036854779876",
        "98765432109876543210987654321",
        "-98765432109876543210987654321",
        "987654321098765432109876543210987654321098765432109876543210",
        "0x9876543210987654321098765432109876543210",
        "9876e9876",
        "9876secret",
        "s9876",
        "9876-54-32",
        "[\"9876\"]",
        "[9876]",
        "{ a = \"9876\" }",
        "\"9876",
    ] {
        error(password);
    }
}

#[test]
fn syntax_error_has_its_line() {
    for (text, line, part) in [
        ("[limits]\nmax-keys = \n", 2, ""),
        ("[limits]\nmax-keys = 1\n\nmax-kays = 1\n", 4, "max-kays"),
        ("max-keys = 1\n", 1, "max-keys"),
        ("[limits]\nmax-keys = \"many\"\n", 2, "usize"),
        ("[limits]\nmax-keys = 1.5\n", 2, "usize"),
        ("[limits]\nmax-keys = 1\nmax-keys = 2\n", 3, "duplicate"),
        ("[listen]\nallow-anonymous = \"yes\"\n", 2, "boolean"),
        ("[limits]\nmax-clock-drift = \"3\"\n", 2, "3s"),
        ("[storage]\ndurable = \"none\"\n", 2, "requested"),
    ] {
        match Config::from_toml(text) {
            Err(ConfigError::Syntax { line: found, message, path: None }) => {
                assert_eq!(found, line, "{text}: {message}");
                assert!(message.contains(part) && !message.contains('\n'), "{text}: {message}");
            }
            other => panic!("{text}: {other:?}"),
        }
    }
}

#[test]
fn contradiction_names_the_setting() {
    for (text, key, part) in [
        ("[broker]\nbroker = [\"mqtt://h\"]\n[listen]\nlisten = [\"h:1\"]\n", "listen", "broker"),
        (
            "[broker]\nbroker = [\"mqtt://h\"]\n[login]\npassword-file = \"p\"\n",
            "password-file",
            "broker",
        ),
        (
            "[broker]\nbroker = [\"mqtt://h\"]\n[broker-limits]\nmax-sessions = 5\n",
            "max-sessions",
            "broker",
        ),
        ("[broker]\nuser = \"u\"\n", "user", "give broker"),
        ("[etcd]\netcd-name = \"n\"\n", "etcd-name", "give etcd"),
        ("[etcd]\netcd = [\"http://e\"]\n[storage]\ndata-dir = \"d\"\n", "data-dir", "either"),
        ("[listen]\nlisten-tls = [\"h:1\"]\n", "listen-tls", "listen-tls-cert"),
        ("[tls]\nlisten-tls-cert = \"c\"\n", "listen-tls-cert", "listen-tls-key"),
        ("[tls]\nlisten-tls-client-ca = \"c\"\n", "listen-tls-client-ca", "listen-tls-cert"),
        ("[login]\ncertificate-user = \"cn\"\n", "certificate-user", "listen-tls-client-ca"),
        ("[login]\nno-client-id-binding = true\n", "no-client-id-binding", "password-file"),
        ("[login]\nservice-account-keys = \"k\"\n", "service-account-keys", "issuer"),
        ("[login]\nservice-account-audience = [\"a\"]\n", "service-account-audience", "keys"),
        ("[storage]\ndurable = \"all\"\n", "durable", "data-dir or etcd"),
        ("[storage]\ndurable-keys = [\"k\"]\n", "durable-keys", "data-dir or etcd"),
        ("[storage]\nmin-free-space = 1\n", "min-free-space", "data-dir"),
        ("[http]\ntraffic = true\n", "traffic", "metrics-listen"),
        ("[http]\nhttp-allowed-hosts = [\"h\"]\n", "http-allowed-hosts", "metrics-listen"),
        (
            "[http]\nmetrics-listen = \"h:1\"\nhttp-allowed-hosts = [\"h:1\"]\n",
            "http-allowed-hosts",
            "without a port",
        ),
        (
            "[http]\nmetrics-listen = \"h:1\"\nhttp-allowed-hosts = [\"a..b\"]\n",
            "http-allowed-hosts",
            "not a host name",
        ),
        ("[capture]\ncapture-redacted = true\n", "capture-redacted", "capture"),
        (
            "[policy]\npolicy = \"p\"\n[broker]\nbroker = [\"mqtt://h\"]\n",
            "policy",
            "trust-claimed-ids",
        ),
        (
            "[policy]\npolicy = \"p\"\n[listen]\nallow-anonymous = true\n",
            "allow-anonymous",
            "policy",
        ),
        ("[broker-limits]\nmax-connections = 0\n", "max-connections", "at least 1"),
        ("[limits]\nclient-quota-percent = 101\n", "client-quota-percent", "at most 100"),
        ("[limits]\nmax-clock-drift = \"60001ms\"\n", "max-clock-drift", "60s"),
        (
            "[listen]\nlisten-websocket = [\"h:1\"]\nwebsocket-origin = [\"panel.example\"]\n",
            "websocket-origin",
            "https://panel.example",
        ),
        ("[store]\nnode-id = \"a:b\"\n", "node-id", ""),
    ] {
        let config = Config::from_toml(text).unwrap();
        let error = config.mode().unwrap_err();
        assert_eq!(error.key(), Some(key), "{text}: {error}");
        assert!(error.to_string().contains(part), "{text}: {error}");
    }
}

#[test]
fn errors_hide_the_password_of_a_url() {
    let text = error_of_syntax("[broker]\nbroker = \"mqtt://lamp:secret@h\"\n");
    assert!(text.contains("line 2: ") && text.contains("expected a list: ["), "{text}");
    assert!(!text.contains("secret"), "{text}");
}

#[cfg(feature = "clap")]
#[test]
fn sections_hide_the_password_of_a_url() {
    let text =
        "[broker]\nbroker = [\"mqtt://lamp:secret@h\"]\n[etcd]\netcd = [\"http://u:secret@e\"]\n";
    let sections = format!("{:?}", Config::from_toml(text).unwrap().sections());
    assert!(sections.contains("mqtt://(hidden)@h") && !sections.contains("secret"), "{sections}");
}

fn error_of_syntax(text: &str) -> String {
    Config::from_toml(text).unwrap_err().to_string()
}

#[test]
fn broken_pattern_is_rejected() {
    let text = "[storage]\ndata-dir = \"d\"\ndurable-keys = [\"[a\"]\n";
    assert!(error(text).starts_with("durable-keys: [a: "), "{}", error(text));
}

#[test]
fn setting_names_are_unique() {
    let full = "[storage]\ndata-dir = \"d\"\n";
    let config = Config::from_toml(full).unwrap();
    let table = toml::Table::try_from(&config).unwrap();
    let keys: Vec<&String> = table
        .values()
        .filter_map(toml::Value::as_table)
        .flat_map(|section| section.keys())
        .collect();
    assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), keys.len(), "{keys:?}");
}

#[cfg(feature = "schema")]
#[test]
#[expect(clippy::disallowed_methods, reason = "the author of a change requests the update")]
fn committed_schema_equals_the_configuration() {
    let schema = schemars::schema_for!(Config);
    let schema = serde_json::to_string_pretty(&schema).unwrap() + "\n";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("statestore.schema.json");
    if std::env::var("STATESTORE_SCHEMA").is_ok_and(|value| value == "write") {
        std::fs::write(&path, &schema).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(committed == schema, "run again with STATESTORE_SCHEMA=write, and review the diff");
}

#[cfg(feature = "clap")]
#[test]
fn option_replaces_the_value_of_a_file() {
    let command = Config::add_options(clap::Command::new("serve"), "STATESTORE_TEST_");
    let apply = |options: &str, file: &str| {
        let words = std::iter::once("serve").chain(options.split_whitespace());
        let matches = command.clone().try_get_matches_from(words).unwrap();
        let mut config = Config::from_toml(file).unwrap();
        config.apply(&matches).unwrap();
        (config, Config::origin("max-keys", &matches, None))
    };
    let file =
        "[limits]\nmax-keys = 7\n[http]\ntraffic = true\n[listen]\nlisten = [\"a:1\", \"b:1\"]\n";
    let (kept, origin) = apply("", file);
    assert_eq!(kept, Config::from_toml(file).unwrap());
    assert_eq!(origin, Origin::Default);
    let (replaced, origin) = apply("--max-keys 8 --traffic=false --listen c:1", file);
    assert_eq!((replaced.limits.max_keys, replaced.http.traffic), (8, false));
    assert_eq!(replaced.listen.listen, ["c:1"]);
    assert_eq!(origin, Origin::CommandLine);
    let (all, _) =
        apply("--traffic --watch-files 3s --durable all --data-dir /d --listen d:1,e:1", "");
    assert!(all.http.traffic && all.reload.watch_files.is_some());
    assert_eq!(all.listen.listen, ["d:1", "e:1"]);
}
