//! The options of `decode`.

use std::ffi::OsString;

use clap::ValueEnum;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
The input is a message of the protocol, or a sequence of MQTT 5 packets: text, hexadecimal digits (with
spaces or colons, or with the prefix 0x), or bytes on standard input. Its kind is detected unless --as is
given. Values are shown as lengths unless --values is given. If a part of the input is invalid, the error
contains its position, and the exit code is 2.

Examples:
  statestore-chaos decode '001696374425000:00000:CLIENT'
  statestore-chaos decode 2a320d0a24330d0a4745540d0a24310d0a6b0d0a
  statestore-chaos decode --after SET :-1
  statestore-chaos decode clients/statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8/6C616D70/command/notify/6B
  cat packets.bin | statestore-chaos decode -")]
pub(crate) struct Decode {
    /// Bytes to decode; - or nothing for standard input
    #[arg(value_name = "INPUT")]
    pub(crate) input: Vec<OsString>,
    /// Kind of the input
    #[arg(long = "as", value_enum, value_name = "KIND")]
    pub(crate) kind: Option<Kind>,
    /// Command of a reply: the meaning of a reply depends on it
    #[arg(long, value_enum, ignore_case = true, value_name = "VERB")]
    pub(crate) after: Option<After>,
    /// Show values
    #[arg(long)]
    pub(crate) values: bool,
    /// Output format
    #[arg(long, env = "STATESTORE_OUTPUT", value_enum, default_value_t)]
    pub(crate) output: Output,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// Lines
    #[default]
    Raw,
    /// One JSON object for each message
    Json,
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
