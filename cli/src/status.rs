//! `status`: reports whether requests reach a store, and which store of a cluster leads.

use std::process::ExitCode;

use serde_json::{Map, Value};
use statestore_tokio::Error;

use crate::args::{Common, Output, Status};
#[cfg(feature = "etcd")]
use crate::cluster_status;
use crate::connection;
use crate::escape::printable;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::metrics_client::MetricsUrl;
use crate::output;

/// A key that is probably absent.
const KEY: &str = "statestore-status";

/// Default of `--metrics-url` for health checks: the metrics listener of the container image.
const DEFAULT_URL: &str = "http://127.0.0.1:9464";

pub(crate) async fn run(args: Status) -> Result<ExitCode, Failure> {
    if args.ready || args.alive {
        let page = if args.alive { "healthz" } else { "readyz" };
        let health = fetch_health(args.metrics_url.as_deref(), page).await?;
        output::raw(format!("{}\n", health.text).as_bytes())?;
        return Ok(exit_code(health.is_ok));
    }
    #[cfg(not(feature = "etcd"))]
    args.etcd.check()?;
    #[cfg(feature = "etcd")]
    let is_cluster = !args.etcd.etcd.is_empty();
    #[cfg(not(feature = "etcd"))]
    let is_cluster = false;

    let (mut text, mut json, mut is_ok) = (String::new(), Map::new(), true);
    if args.metrics_url.is_none() && !is_cluster {
        request(&args.common).await?;
        text += "store      ready\n";
        json.insert("ready".to_owned(), true.into());
    } else if args.metrics_url.is_some() {
        let health = fetch_health(args.metrics_url.as_deref(), "readyz").await?;
        is_ok &= health.is_ok;
        if health.is_ok {
            text += "store      ready\n";
        } else {
            text += &format!("store      not ready: {}\n", health.text);
            json.insert("reason".to_owned(), health.text.into());
        }
        json.insert("ready".to_owned(), health.is_ok.into());
    }
    #[cfg(feature = "etcd")]
    if is_cluster {
        let cluster = cluster_status::fetch(&args.etcd).await?;
        is_ok &= cluster.has_leader;
        text += &cluster.text;
        json.extend(cluster.json);
    }
    let text = match args.common.format.output {
        Output::Text => text,
        Output::Json => format!("{}\n", Value::Object(json)),
    };
    output::raw(printable(&text).as_bytes())?;
    Ok(exit_code(is_ok))
}

fn exit_code(is_ok: bool) -> ExitCode {
    Exit::success_if(is_ok).into()
}

/// Fails unless the store responds to a request, which a policy may refuse.
async fn request(common: &Common) -> Result<(), Failure> {
    let store = connection::store(common)?;
    let response = store.get(KEY).await;
    store.shutdown().await;
    match response {
        Ok(_) | Err(Error::Refused { .. }) => Ok(()),
        Err(error) => Err(Failure::request(error)),
    }
}

/// Response of a health check.
struct Health {
    is_ok: bool,
    /// One line.
    text: String,
}

async fn fetch_health(url: Option<&str>, page: &str) -> Result<Health, Failure> {
    let advice = match url {
        Some(_) => "check --metrics-url: it must be the address of `serve --metrics-listen`",
        None => {
            "start the store with `statestore serve --metrics-listen 127.0.0.1:9464`, or set \
             --metrics-url to its metrics listener"
        }
    };
    let url = MetricsUrl::parse(url.unwrap_or(DEFAULT_URL)).map_err(Failure::bad_input)?;
    let fetched = url.fetch_sibling(page).await;
    let failed = |error| Failure::unreachable(format_args!("{error}; {advice}"));
    let response = fetched.map_err(failed)?;
    let is_ok = match response.code {
        200 => true,
        503 => false,
        _ => return Err(Failure::bad_input(url.unexpected(&response))),
    };
    Ok(Health { is_ok, text: response.text() })
}
