//! `export`: the keys of a store as lines of JSON.

use std::path::Path;
use std::process::ExitCode;

use crate::args::Export;
use crate::data::file::Output;
use crate::data::{keys, requests};
use crate::failure::Failure;
use crate::output::notice;
use crate::signals::{self, Signals};

pub(crate) async fn run(args: Export) -> Result<ExitCode, Failure> {
    let mut signals = Signals::new()?.with_hangup()?;
    let export = async {
        let file = args.file.clone().filter(|file| file != Path::new("-"));
        let mut output = Output::new(file, "--file")?;
        let count = requests::dump(&args.common(), &args.pattern, &mut output).await?;
        output.finish().await?;
        notice(format_args!("exported {}", keys(count)));
        if count == 0 {
            notice(format_args!("0 keys matched the pattern {}", args.pattern));
        }
        Ok(ExitCode::SUCCESS)
    };
    tokio::select! {
        ended = export => ended,
        signal = signals.received() => {
            notice("stopped: the export is incomplete; run it again");
            Ok(signals::exit_code(signal))
        }
    }
}
