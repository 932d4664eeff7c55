//! The options of `decode`.

use std::ffi::OsString;

use clap::ValueEnum;

use super::Output;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Input is what the protocol says, or packets of MQTT 5 one after the other: as text, as hexadecimal digits (with blanks or
colons between them, or 0x in front), or any bytes from standard input. What it is shows by itself, unless --as says so. Values
are shown by their length alone without --values. Ends with 2 where something cannot be read, and says at which byte.

Examples:
  statestore decode '001696374425000:00000:CLIENT'
  statestore decode 2a320d0a24330d0a4745540d0a24310d0a6b0d0a
  statestore decode --after SET :-1
  statestore decode clients/statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8/6C616D70/command/notify/6B
  cat packets.bin | statestore decode -")]
pub(crate) struct Decode {
    /// What to decode; - reads standard input, and so does nothing
    #[arg(value_name = "INPUT")]
    pub(crate) input: Vec<OsString>,
    /// What it is
    #[arg(long = "as", value_enum, value_name = "KIND")]
    pub(crate) kind: Option<Kind>,
    /// Which command a reply answers: the same bytes mean different things after different ones
    #[arg(long, value_enum, ignore_case = true, value_name = "VERB")]
    pub(crate) after: Option<After>,
    /// Show values too
    #[arg(long)]
    pub(crate) values: bool,
    /// How to print it: lines, or an object of JSON for each message
    #[arg(long, env = "STATESTORE_OUTPUT", value_enum, default_value_t)]
    pub(crate) output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// The payload of a request
    Request,
    /// The payload of a reply
    Reply,
    /// The payload of a notification
    Notification,
    /// A topic
    Topic,
    /// A value of a hybrid logical clock
    Clock,
    /// Packets of MQTT 5
    Packets,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "UPPER")]
pub(crate) enum After {
    Get,
    Set,
    Del,
    Vdel,
    Keynotify,
    /// KEYNOTIFY with STOP
    Stop,
    Scan,
}
