//! What `dev` prints when its store is ready.

use std::fmt::Write as _;

use crate::args::DevRun;
use crate::dev::certificates::{AUTHORITY, CLIENT};
use crate::dev::directory::Directory;
use crate::dev::environment::{Endpoint, shown};
use crate::dev::tokens::TOKEN;

/// The ways to connect, and the line to copy.
pub(super) fn table(args: &DevRun, endpoint: &Endpoint, directory: &Directory) -> String {
    let file = |name: &str| shown(&directory.path(name));
    let host = &endpoint.host;
    let keys = match &args.store.data_dir {
        Some(path) => format!("keys in {}", shown(path)),
        None => "keys in memory".to_owned(),
    };
    let mut text = format!(
        "statestore: a store for development, not for production; {keys}\n\n  \
         {:<13}{:<28}files\n",
        "login", "address"
    );
    let mut row = |login: &str, address: String, files: String| {
        let _ = writeln!(text, "  {login:<13}{address:<28}{files}");
    };
    let (certificate, token) = (endpoint.certificate_port, endpoint.token_port);
    if let Some(port) = endpoint.plain_port {
        row("none", format!("mqtt://{host}:{port}"), "none; this machine only".to_owned());
    }
    let files = format!("{}, {}", file(CLIENT.certificate), file(CLIENT.key));
    row("certificate", format!("mqtts://{host}:{certificate}"), files);
    row("token", format!("mqtts://{host}:{token}"), file(TOKEN));
    if let Some(port) = endpoint.websocket_port {
        row("none", format!("ws://{host}:{port}"), "none; this machine only".to_owned());
    }
    let _ = write!(
        text,
        "\n  CA: {}\n\nIn another shell, in the same directory, run:\n  {}\n",
        file(AUTHORITY.certificate),
        copied_line(args),
    );
    text
}

/// The line that sets the variables in a shell.
fn copied_line(args: &DevRun) -> String {
    let dir = args.directory.dir.display().to_string();
    match dir == ".session" {
        true => "eval \"$(statestore dev env)\"".to_owned(),
        false => {
            let dir = crate::escape::printable(&dir.replace('\'', "'\\''"));
            format!("eval \"$(statestore dev env --dir '{dir}')\"")
        }
    }
}
