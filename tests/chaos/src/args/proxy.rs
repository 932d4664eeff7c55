//! The options of `proxy`.

use std::path::PathBuf;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
The fault file is TOML, with a table [[fault]] for each fault:
  kind         drop, repeat, hold, cut (the connection before a packet), cut-inside (in the middle
               of a packet), or refuse (a new connection)
  packet       publish, puback or any [default: publish for drop and repeat, otherwise any]
  direction    to-broker or to-client [default: both]
  topic        a topic filter for PUBLISH packets
  probability  from 0 to 1, for each packet [default: 1]
  for          time of a hold, such as \"500ms\"; later packets wait too
  cut-after    time from a drop to the cut of the connection [default: 2s]; clients send a dropped
               packet again only over a new connection
  from, until  time since the start of the proxy, such as \"30s\"

The same seed causes the same faults for the same packets of a connection with the same number. Each
fault is printed as a line on standard output; the last line contains the number of each. A packet
of more than 2 MiB closes its connection. There are at most 256 connections. A repeated packet has
the same packet id as the first one, so some clients report its second acknowledgement as an error.

Clients can request faults by user properties, as at the test broker of Azure IoT Operations. A
value is a reason code as a decimal number:
  fault:rejectconnect, fault:rejectpublish, fault:rejectsubscribe, fault:rejectunsubscribe
                       of the packet of that name: it is not forwarded, and gets this reason code
  fault:disconnect     of any packet but CONNECT: the client is disconnected before the packet is
                       forwarded
  fault:delay          with fault:disconnect: the packet is forwarded, and the client disconnected
                       after these seconds
  fault:requestid      a text that causes one fault, so that the packet passes when it is sent again

Example:
  [[fault]]
  kind = \"drop\"
  packet = \"puback\"
  probability = 0.05

  [[fault]]
  kind = \"hold\"
  direction = \"to-client\"
  topic = \"clients/#\"
  for = \"200ms\"
  probability = 0.1")]
pub(crate) struct Proxy {
    /// Address for clients; port 0 selects a free port
    #[arg(long, default_value = "127.0.0.1:1884", value_name = "HOST:PORT")]
    pub(crate) listen: String,
    /// The broker, without TLS: mqtt://HOST:PORT
    #[arg(
        long,
        env = "STATESTORE_BROKER",
        hide_env_values = true,
        default_value = "mqtt://127.0.0.1:1883",
        value_name = "URL"
    )]
    pub(crate) broker: String,
    /// Fault file [default: no faults]
    #[arg(long, value_name = "FILE")]
    pub(crate) faults: Option<PathBuf>,
    /// Seed of the random choices [default: a random seed]
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
}
