//! Whether requests reach a store, as `serve --metrics` says it: for the health check of a container, and for scripts.

use std::process::ExitCode;

use crate::args::Ready;
use crate::escape::on_one_line;
use crate::failure::Failure;
use crate::output;
use crate::requests::NOT_DONE;
use crate::scrape::Url;

/// Characters of a reason that are shown.
const SHOWN_MAX: usize = 1_000;

pub(crate) async fn run(args: Ready) -> Result<ExitCode, Failure> {
    let url = Url::parse(&args.metrics).map_err(Failure::bad_input)?;
    let page = if args.alive { "healthz" } else { "readyz" };
    let answer = url.beside(page).await.map_err(Failure::unreachable)?;
    let code = match answer.code {
        200 => ExitCode::SUCCESS,
        503 => ExitCode::from(NOT_DONE),
        code => {
            let text = format!("it answers {code}; is it the address of `serve --metrics`?");
            return Err(Failure::bad_input(url.error(text)));
        }
    };
    let line: String = answer.body.trim_end().chars().take(SHOWN_MAX).collect();
    output::raw(format!("{}\n", on_one_line(&line)).as_bytes())?;
    Ok(code)
}
