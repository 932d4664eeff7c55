//! Settings to options.

use super::*;

fn from(variables: &[(&str, &str)]) -> Result<Options, SettingsError> {
    let host = ("AIO_BROKER_HOSTNAME", "broker");
    let all = std::iter::once(&host).chain(variables);
    parse(all)?.options()
}

fn parse<'a>(
    variables: impl IntoIterator<Item = &'a (&'a str, &'a str)>,
) -> Result<Settings, SettingsError> {
    let variables = variables.into_iter().map(|(name, value)| (name.into(), value.into()));
    Settings::from_variables(variables)
}

fn error(variables: &[(&str, &str)]) -> String {
    from(variables).expect_err("the settings are invalid").to_string()
}

#[test]
fn host_alone_gives_the_defaults_of_the_sdks_without_a_session() {
    let options = from(&[]).expect("a host suffices");
    assert_eq!((&*options.host, options.port), ("broker", 8883));
    assert_eq!(options.tls, Some(Tls::default()));
    assert_eq!(options.keep_alive, Duration::from_secs(60));
    assert_eq!((options.session(), options.credentials), (None, None));
    assert!(options.client_id.starts_with("statestore-"), "{}", options.client_id);
}

#[test]
fn each_variable_sets_its_option() {
    let options = from(&[
        ("AIO_BROKER_TCP_PORT", "18883"),
        ("AIO_MQTT_CLIENT_ID", "lamp-7"),
        ("AIO_MQTT_KEEP_ALIVE", "30"),
        ("AIO_MQTT_SESSION_EXPIRY", "90"),
        ("AIO_MQTT_USERNAME", "lamp"),
        ("AIO_SAT_FILE", "/token"),
        ("AIO_TLS_CA_FILE", "/ca"),
        ("AIO_TLS_CERT_FILE", "/chain"),
        ("AIO_TLS_KEY_FILE", "/key"),
        ("AIO_TLS_KEY_PASSWORD_FILE", "/secret"),
        ("AIO_MQTT_PASSWORD_FILE", ""),
        ("AIO_BROKER_SERVICE_HOST", "10.0.0.7"),
        ("PATH", "/bin"),
    ])
    .expect("the settings are valid");
    assert_eq!((options.port, &*options.client_id), (18_883, "lamp-7"));
    assert_eq!(options.keep_alive, Duration::from_secs(30));
    assert_eq!(options.session(), Some(Duration::from_secs(90)));
    assert_eq!(options.credentials, Some(("lamp".into(), String::new())));
    assert_eq!(options.service_account_token, Some("/token".into()));
    let tls = Tls::default().ca_file("/ca").identity("/chain", "/key");
    assert_eq!(options.tls, Some(tls.key_password_file("/secret")));
    let plain = from(&[("AIO_MQTT_USE_TLS", "False"), ("AIO_TLS_CA_FILE", "/ca")]);
    assert_eq!(plain.expect("a file that is not used is valid").tls, None);
}

#[test]
fn clean_start_and_expiry_select_the_session() {
    for (clean_start, expiry, session) in [
        ("", "", None),
        ("true", "", None),
        ("true", "90", None),
        ("false", "", Some(3_600)),
        ("false", "90", Some(90)),
        ("", "90", Some(90)),
        ("false", "0", None),
    ] {
        let variables = [
            ("AIO_MQTT_CLEAN_START", clean_start),
            ("AIO_MQTT_SESSION_EXPIRY", expiry),
            ("AIO_MQTT_CLIENT_ID", "lamp-7"),
        ];
        let options = from(&variables).expect("the settings are valid");
        let case = format!("clean start {clean_start:?}, expiry {expiry:?}");
        assert_eq!(options.session(), session.map(Duration::from_secs), "{case}");
        let of_store = options.or_store_defaults().session();
        assert!(clean_start != "true" || of_store.is_none(), "{case}");
    }
}

#[test]
fn invalid_settings_are_errors_that_name_them_and_the_remedy() {
    let missing = parse([]).and_then(|none| none.options()).expect_err("the host is missing");
    assert_eq!(missing.to_string(), "AIO_BROKER_HOSTNAME is not set");
    for (variables, expected) in [
        (
            &[("AIO_BROKER_TCP_PORT", "0")][..],
            "AIO_BROKER_TCP_PORT is invalid: expected a port from 1 to 65535",
        ),
        (&[("AIO_MQTT_USE_TLS", "yes")], "AIO_MQTT_USE_TLS is invalid: expected true or false"),
        (
            &[("AIO_MQTT_KEEP_ALIVE", "PT60S")],
            "AIO_MQTT_KEEP_ALIVE is invalid: expected seconds, from 0 to 4294967295",
        ),
        (
            &[("AIO_MQTT_PASSWORD_FILE", "/p"), ("AIO_SAT_FILE", "/t")],
            "AIO_MQTT_PASSWORD_FILE and AIO_SAT_FILE are both set: remove one of them",
        ),
        (
            &[("AIO_TLS_CERT_FILE", "/chain")],
            "AIO_TLS_CERT_FILE is set without AIO_TLS_KEY_FILE: set both or neither",
        ),
        (
            &[("AIO_TLS_KEY_PASSWORD_FILE", "/p")],
            "AIO_TLS_KEY_PASSWORD_FILE is set without AIO_TLS_KEY_FILE: set both or neither",
        ),
        (
            &[("AIO_MQTT_SESSION_EXPIRY", "60")],
            "AIO_MQTT_SESSION_EXPIRY is set without AIO_MQTT_CLIENT_ID: set both or neither",
        ),
        (
            &[("AIO_MQTT_PASSWORD", "secret")],
            "AIO_MQTT_PASSWORD is not supported: write the password to a file, and name it with \
             AIO_MQTT_PASSWORD_FILE",
        ),
        (
            &[("AIO_MQTT_CLIENTID", "lamp-7")],
            "unknown setting AIO_MQTT_CLIENTID: did you mean AIO_MQTT_CLIENT_ID?",
        ),
    ] {
        assert_eq!(error(variables), expected);
    }
    let missing = error(&[("AIO_MQTT_PASSWORD_FILE", "/no/such/file")]);
    let expected = "AIO_MQTT_PASSWORD_FILE: cannot read /no/such/file: ";
    assert!(missing.starts_with(expected), "{missing}");
}

#[test]
fn connection_string_has_properties_in_any_case_and_iso_times() {
    let text = " hostname = broker ; TcpPort=1883;UseTls=False;ClientId=c;KeepAlive=PT1M30S;\
                SessionExpiry=P1DT1H;ConnectionTimeout=7;Username=u;Password=a=b;";
    let options = Options::from_connection_string(text).expect("the text is valid");
    assert_eq!((&*options.host, options.port, options.tls.is_none()), ("broker", 1883, true));
    assert_eq!(options.keep_alive, Duration::from_secs(90));
    assert_eq!(options.session(), Some(Duration::from_secs(90_000)));
    assert_eq!(options.connect_timeout, Duration::from_secs(7));
    assert_eq!(options.credentials, Some(("u".into(), "a=b".into())));
    for (text, expected) in [
        ("", "HostName is not set"),
        ("HostName=h;Nonsense=1", "part 2 of the connection string is not a known Name=Value"),
        // The rest of a password that contains a semicolon, and a URL with one.
        (
            "HostName=h;Password=a;secret",
            "part 3 of the connection string is not a known Name=Value",
        ),
        ("mqtt://u:secret@h", "part 1 of the connection string is not a known Name=Value"),
        (
            "HostName=h;KeepAlive=P",
            "KeepAlive is invalid: expected seconds, or a time such as PT60S",
        ),
        (
            "HostName=h;KeyFilePassword=p",
            "KeyFilePassword is not supported: write the password to a file, and name it with \
             KeyPasswordFile",
        ),
        (
            "HostName=h;Password=p;SatAuthFile=/t",
            "Password and SatAuthFile are both set: remove one of them",
        ),
    ] {
        let error = Options::from_connection_string(text).expect_err(text);
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn iso_durations_are_sums_of_their_units_in_order() {
    let seconds = |text: &str| iso_duration(text).map(|duration| duration.as_secs());
    for (text, expected) in [
        ("PT0S", Some(0)),
        ("PT60S", Some(60)),
        ("PT1H2M3S", Some(3_723)),
        ("P2D", Some(172_800)),
        ("P1DT1S", Some(86_401)),
        ("P", None),
        ("PT", None),
        ("P1DT", None),
        ("PT1S2M", None),
        ("PT1.5S", None),
        ("PT-1S", None),
        ("1M", None),
        ("PT99999999999S", None),
    ] {
        assert_eq!(seconds(text), expected, "{text}");
    }
}

#[test]
fn misspelt_variables_are_found_and_others_are_not() {
    assert_eq!(nearest("AIO_BROKER_HOST_NAME"), Some("AIO_BROKER_HOSTNAME"));
    assert_eq!(nearest("AIO_TLS_CAFILE"), Some("AIO_TLS_CA_FILE"));
    for other in ["AIO_BROKER_PORT", "AIO_BROKER_SERVICE_HOST", "AIO_MQTT_CS", "AIO_"] {
        assert_eq!(nearest(other), None, "{other}");
    }
    assert_eq!((distance("", "abc"), distance("kitten", "sitting")), (3, 3));
}

#[test]
fn password_file_is_read_without_its_line_end() {
    let path = std::env::temp_dir().join(format!("statestore-password-{}", std::process::id()));
    for (text, password) in [("a b", "a b"), ("a\n", "a"), ("a\r\n", "a"), ("a\n\n", "a\n")] {
        std::fs::write(&path, text).expect("a file");
        let file = path.to_str().expect("UTF-8");
        let options = from(&[("AIO_MQTT_PASSWORD_FILE", file)]).expect("the file exists");
        assert_eq!(options.credentials, Some((String::new(), password.into())), "{text:?}");
    }
    std::fs::remove_file(&path).expect("the file");
}

#[test]
fn options_if_set_are_none_only_without_any_variable() {
    let if_set = |variables: &[(&str, &str)]| parse(variables)?.options_if_set();
    let unrelated = [("AIO_BROKER_SERVICE_HOST", "10.0.0.7"), ("AIO_TLS_CA_FILE", "")];
    assert!(if_set(&unrelated).expect("other variables are ignored").is_none());
    let found = if_set(&[("AIO_BROKER_HOSTNAME", "broker")]).expect("a host suffices");
    assert_eq!(found.map(|options| options.host), Some("broker".to_owned()));
    for (variable, expected) in [
        ("AIO_MQTT_CLIENT_ID", "AIO_BROKER_HOSTNAME is not set"),
        ("AIO_BROKER_HOSTNAM", "did you mean AIO_BROKER_HOSTNAME?"),
    ] {
        let error = if_set(&[(variable, "lamp")]).expect_err("the settings are incomplete");
        assert!(error.to_string().contains(expected), "{variable}: {error}");
    }
}
