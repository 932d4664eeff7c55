//! Values of an application's own types.

use std::error::Error as StdError;
use std::fmt;
use std::marker::PhantomData;

use bytes::Bytes;
use statestore_proto::client::{IntoBytes, VersionedValue};
use statestore_proto::hlc::Version;

use crate::client::call::Set;
use crate::client::error::Error;
use crate::client::handle::StateStore;

/// Encodes values of type `T`, and decodes them. `Json` implements it for the types of serde, with
/// the feature `json`.
///
/// ```
/// use statestore_tokio::{Bytes, Codec};
///
/// /// Temperatures in tenths of a degree, as a decimal number.
/// struct Tenths;
///
/// impl Codec<i32> for Tenths {
///     type Error = Box<dyn std::error::Error + Send + Sync>;
///
///     fn encode(&self, value: &i32) -> Result<Bytes, Self::Error> {
///         Ok(value.to_string().into())
///     }
///
///     fn decode(&self, bytes: &[u8]) -> Result<i32, Self::Error> {
///         Ok(std::str::from_utf8(bytes)?.parse()?)
///     }
/// }
/// ```
pub trait Codec<T> {
    /// Error of a value that cannot be encoded or decoded. Programs log errors, so it should not
    /// quote the value.
    type Error: Into<Box<dyn StdError + Send + Sync>>;

    /// Encodes a value.
    ///
    /// # Errors
    /// If the format cannot represent the value.
    fn encode(&self, value: &T) -> Result<Bytes, Self::Error>;

    /// Decodes a value. Any client may have written the bytes.
    ///
    /// # Errors
    /// If the bytes are not a value of this type.
    fn decode(&self, bytes: &[u8]) -> Result<T, Self::Error>;
}

/// JSON, with serde.
#[cfg(feature = "json")]
#[derive(Clone, Copy, Debug, Default)]
pub struct Json;

#[cfg(feature = "json")]
impl<T: serde::Serialize + serde::de::DeserializeOwned> Codec<T> for Json {
    type Error = JsonError;

    fn encode(&self, value: &T) -> Result<Bytes, JsonError> {
        Ok(serde_json::to_vec(value)?.into())
    }

    fn decode(&self, bytes: &[u8]) -> Result<T, JsonError> {
        Ok(serde_json::from_slice(bytes)?)
    }
}

/// Error of [`Json`]. Unlike the error of `serde_json`, it does not quote the value, which any
/// client may have written.
#[cfg(feature = "json")]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem} (line {line}, column {column})")]
#[non_exhaustive]
pub struct JsonError {
    problem: &'static str,
    line: usize,
    column: usize,
}

#[cfg(feature = "json")]
impl From<serde_json::Error> for JsonError {
    fn from(error: serde_json::Error) -> Self {
        let problem = match error.classify() {
            serde_json::error::Category::Data => "the JSON does not fit the type",
            _ => "not JSON",
        };
        Self { problem, line: error.line(), column: error.column() }
    }
}

impl StateStore {
    /// This store for values of type `T` as JSON. Needs the feature `json`.
    ///
    /// ```no_run
    /// # use statestore_tokio::StateStore;
    /// # #[derive(serde::Serialize, serde::Deserialize)]
    /// struct Setpoint {
    ///     celsius: f64,
    /// }
    ///
    /// # async fn example(store: StateStore) -> Result<(), Box<dyn std::error::Error>> {
    /// let setpoints = store.typed::<Setpoint>();
    /// setpoints.set("rooms/1", &Setpoint { celsius: 21.5 })?.await?;
    /// if let Some(found) = setpoints.get("rooms/1").await? {
    ///     println!("{} °C since {:?}", found.value.celsius, found.version);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "json")]
    #[must_use]
    pub fn typed<T: serde::Serialize + serde::de::DeserializeOwned>(&self) -> Typed<T, Json> {
        self.typed_with(Json)
    }

    /// This store for values of type `T` in the format of `codec`.
    #[must_use]
    pub fn typed_with<T, C: Codec<T>>(&self, codec: C) -> Typed<T, C> {
        Typed { store: self.clone(), codec, values: PhantomData }
    }
}

/// A store for values of type `T`, encoded by the codec `C`.
///
/// For requests without a value, such as DEL, use the [`store`](Self::store). A value that a
/// [`Watch`](crate::Watch) returns can be [decoded](Self::decode).
#[derive(Clone)]
pub struct Typed<T, C> {
    store: StateStore,
    codec: C,
    values: PhantomData<fn() -> T>,
}

/// A decoded value, and its version.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TypedValue<T> {
    /// The value.
    pub value: T,
    /// The version; `None` if the response contains none.
    pub version: Option<Version>,
}

/// Omits the value.
impl<T> fmt::Debug for TypedValue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TypedValue").field("version", &self.version).finish_non_exhaustive()
    }
}

/// Error of a typed request.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TypedError {
    /// The request failed.
    #[error(transparent)]
    Request(#[from] Error),
    /// The value cannot be encoded. Nothing was sent.
    #[error("the value cannot be encoded: {0}")]
    Encode(Box<dyn StdError + Send + Sync>),
    /// The stored bytes are not a value of the type.
    #[error("the stored value cannot be decoded: {0}")]
    Decode(Box<dyn StdError + Send + Sync>),
}

impl<T, C: Codec<T>> Typed<T, C> {
    /// Reads and decodes a value; `None` if the key does not exist.
    ///
    /// # Errors
    /// [`TypedError::Request`], and [`TypedError::Decode`] if the stored bytes are not a `T`.
    pub async fn get(&self, key: impl IntoBytes) -> Result<Option<TypedValue<T>>, TypedError> {
        let Some(VersionedValue { value, version, .. }) = self.store.get(key.into_bytes()).await?
        else {
            return Ok(None);
        };
        Ok(Some(TypedValue { value: self.decode(&value)?, version }))
    }

    /// Encodes a value, and returns the request that stores it; see [`StateStore::set`] for its
    /// options.
    ///
    /// # Errors
    /// [`TypedError::Encode`]. The request itself returns an [`Error`].
    pub fn set(&self, key: impl IntoBytes, value: &T) -> Result<Set<Version>, TypedError> {
        let value = self.codec.encode(value).map_err(|error| TypedError::Encode(error.into()))?;
        Ok(self.store.set(key, value))
    }

    /// Decodes a value.
    ///
    /// # Errors
    /// [`TypedError::Decode`].
    pub fn decode(&self, bytes: &[u8]) -> Result<T, TypedError> {
        self.codec.decode(bytes).map_err(|error| TypedError::Decode(error.into()))
    }

    /// The store without types.
    #[must_use]
    pub const fn store(&self) -> &StateStore {
        &self.store
    }
}

impl<T, C> fmt::Debug for Typed<T, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Typed").field("store", &self.store).finish_non_exhaustive()
    }
}
