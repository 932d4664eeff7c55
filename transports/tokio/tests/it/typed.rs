//! Values of an application's own types.

use statestore_loopback::Hub;
use statestore_tokio::{Bytes, Codec, TypedError};

use crate::both;

/// Temperatures as decimal numbers of at most three digits.
struct Degrees;

impl Codec<u32> for Degrees {
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn encode(&self, value: &u32) -> Result<Bytes, Self::Error> {
        if *value > 999 { Err("too hot".into()) } else { Ok(value.to_string().into()) }
    }

    fn decode(&self, bytes: &[u8]) -> Result<u32, Self::Error> {
        Ok(std::str::from_utf8(bytes)?.parse()?)
    }
}

#[tokio::test(start_paused = true)]
async fn values_are_stored_in_the_format_of_the_codec() {
    let broker = Hub::new();
    let (_service, store) = both(&broker).await;
    let degrees = store.typed_with(Degrees);
    let version = degrees.set("k", &21).expect("it can be encoded").await.expect("a version");
    assert_eq!(store.get("k").await.expect("a response").expect("it was set").value, "21");
    let found = degrees.get("k").await.expect("a number").expect("it was set");
    assert_eq!((found.value, found.version), (21, Some(version)));
    assert_eq!(degrees.get("absent").await.expect("a response"), None);
}

#[tokio::test(start_paused = true)]
async fn values_that_do_not_fit_the_codec_are_errors_and_change_nothing() {
    let broker = Hub::new();
    let (_service, store) = both(&broker).await;
    let degrees = store.typed_with(Degrees);
    store.set("k", "warm").await.expect("a version");
    let error = degrees.get("k").await.expect_err("not a number");
    assert!(matches!(error, TypedError::Decode(_)), "{error:?}");
    let error = degrees.set("k", &1_000).err().expect("too large");
    assert_eq!(error.to_string(), "the value cannot be encoded: too hot");
    assert_eq!(store.get("k").await.expect("a response").expect("it was set").value, "warm");
}

#[cfg(feature = "json")]
#[tokio::test(start_paused = true)]
async fn default_format_is_json() {
    let broker = Hub::new();
    let (_service, store) = both(&broker).await;
    let lists = store.typed::<Vec<f64>>();
    lists.set("k", &vec![1.5, 2.0]).expect("it can be encoded").await.expect("a version");
    assert_eq!(store.get("k").await.expect("a response").expect("it was set").value, "[1.5,2.0]");
    assert_eq!(lists.get("k").await.expect("a list").expect("it was set").value, [1.5, 2.0]);
    let error = store.typed::<bool>().get("k").await.expect_err("not a bool");
    assert!(matches!(error, TypedError::Decode(_)), "{error:?}");
    store.set("k", "\"secret\"").await.expect("a version");
    let error = store.typed::<bool>().get("k").await.expect_err("not a bool");
    assert!(!format!("{error} {error:?}").contains("secret"), "{error}");
    let found = store.typed::<String>().get("k").await.expect("a text");
    assert!(!format!("{found:?}").contains("secret"), "{found:?}");
}
