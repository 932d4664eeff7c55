//! The options of `proxy`.

use std::path::PathBuf;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
The file of faults is TOML, with a table [[fault]] for each:
  kind         drop, repeat, hold, cut (the connection, in front of a packet), cut-inside (in the middle of one), or refuse
               (a new connection)
  packet       publish, puback or any; by default publish for drop and repeat, and any otherwise
  direction    to-broker or to-client; both unless given
  topic        a topic filter for PUBLISH packets
  probability  from 0 to 1, for each packet; 1 unless given
  for          how long hold holds, as in \"500ms\"; what comes behind waits too
  cut-after    how long after a drop the connection is cut, 2s unless given: over TCP nothing else makes up for what is dropped
  from, until  when, from the start of the proxy on, as in \"30s\"

The same seed does the same to the same packets of a connection of the same number. Each fault is a line on standard output, and
when it is told to stop it says how many there were. Packets of more than 2 MiB end their connection,
and there are 256 of these at most. What is repeated has the
number of the first one, as after a new connection, so that some clients take its second acknowledgement for an error.

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
    /// Where clients connect; port 0 takes a free one
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
    /// What goes wrong; nothing unless given
    #[arg(long, value_name = "FILE")]
    pub(crate) faults: Option<PathBuf>,
    /// What decides which packets; a new one for each run unless given
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
}
