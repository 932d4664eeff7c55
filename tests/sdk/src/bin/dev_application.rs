//! An application that is configured from the environment alone, for `statestore dev`:
//! `dev_application SECONDS` writes and reads a key for that time.

use std::time::{Duration, Instant};

use azure_iot_operations_services::state_store::SetOptions;
use statestore_sdk_tests::{Application, TIMEOUT};

/// Pause between two requests.
const PAUSE: Duration = Duration::from_millis(200);

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::disallowed_methods, reason = "it runs for a time")]
async fn main() {
    let seconds = std::env::args().nth(1).and_then(|text| text.parse().ok()).expect("SECONDS");
    let started = Instant::now();
    let application = Application::from_environment();
    let client = &application.client;
    let mut count = 0_u32;
    loop {
        let value = count.to_string().into_bytes();
        let options = SetOptions::default();
        let set = client.set(b"k".into(), value.clone(), TIMEOUT, None, options).await;
        assert!(set.expect("a response").response, "applied");
        let get = client.get(b"k".into(), TIMEOUT).await.expect("a response");
        assert_eq!(get.response, Some(value));
        count += 1;
        if started.elapsed() >= Duration::from_secs(seconds) {
            break;
        }
        tokio::time::sleep(PAUSE).await;
    }
    println!("{count} values written and read");
    application.close().await;
}
