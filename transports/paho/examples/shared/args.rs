//! The command line of both examples.

use std::process::exit;

use statestore_paho::Options;

/// Returns the options of `--broker` and `--id`, and the remaining arguments.
pub(crate) fn options(usage: &str, id: &str) -> (Options, Vec<String>) {
    let (mut broker, mut id) = ("mqtt://127.0.0.1:1883".to_owned(), id.to_owned());
    let (mut rest, mut arguments) = (Vec::new(), std::env::args().skip(1));
    while let Some(argument) = arguments.next() {
        let value = match &*argument {
            "--broker" => &mut broker,
            "--id" => &mut id,
            "-h" | "--help" => {
                println!("{usage}");
                exit(0)
            }
            _ if argument.starts_with("--") => refuse(usage, &format!("unknown option {argument}")),
            _ => {
                rest.push(argument);
                continue;
            }
        };
        *value = arguments
            .next()
            .unwrap_or_else(|| refuse(usage, &format!("{argument} requires a value")));
    }
    let Some((host, port)) = address(&broker) else {
        refuse(usage, &format!("invalid broker {broker:?}; use mqtt://HOST:PORT"))
    };
    (Options::new(id, host, port), rest)
}

fn address(broker: &str) -> Option<(&str, u16)> {
    let place = broker.strip_prefix("mqtt://")?.trim_end_matches('/');
    let (host, port) = match place.rsplit_once(':') {
        Some((host, port)) if !host.ends_with(':') => (host, port.parse().ok()?),
        _ => (place, 1883),
    };
    (!host.is_empty()).then_some((host, port))
}

/// Prints the error and the usage, and exits.
pub(crate) fn refuse(usage: &str, what: &str) -> ! {
    eprintln!("error: {what}\n\n{usage}");
    exit(2)
}
