use std::time::Duration;

use async_trait::async_trait;
use axum::body::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue, InvalidHeaderValue};
use hyper::{Request, StatusCode, Uri};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

use super::{Sink, SinkError, joined};

/// From the connection to the end of the answer.
const TIME: Duration = Duration::from_secs(10);
/// Of the answer, read so that the connection can be used again.
const LARGEST_ANSWER: usize = 64 * 1024;

/// Posts batches of newline-delimited JSON. Any 2xx takes them; 400, 413, 415 and 422 lose them; all else is tried
/// again.
pub struct HttpSink {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    uri: Uri,
    authorization: Option<HeaderValue>,
}

impl HttpSink {
    /// # Errors
    /// The token cannot stand in a header.
    pub fn new(uri: Uri, token: Option<&str>, tls: rustls::ClientConfig) -> Result<Self, InvalidHeaderValue> {
        let connector =
            hyper_rustls::HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1();
        let authorization = match token {
            Some(token) => {
                let mut value = HeaderValue::try_from(format!("Bearer {token}"))?;
                value.set_sensitive(true);
                Some(value)
            }
            None => None,
        };
        let client = Client::builder(TokioExecutor::new()).build(connector.build());
        Ok(Self { client, uri, authorization })
    }
}

#[async_trait]
impl Sink for HttpSink {
    async fn write(&mut self, lines: &[String]) -> Result<(), SinkError> {
        let mut request = Request::post(self.uri.clone()).header(CONTENT_TYPE, "application/x-ndjson");
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        let request = request
            .body(Full::new(Bytes::from(joined(lines))))
            .map_err(|error| SinkError::Refused(error.to_string()))?;
        let answered = async {
            // The errors of the client name what failed, not what was sent.
            let answer =
                self.client.request(request).await.map_err(|error| SinkError::Away(error.to_string()))?;
            let status = answer.status();
            let _ = Limited::new(answer.into_body(), LARGEST_ANSWER).collect().await;
            Ok(status)
        };
        let status = match tokio::time::timeout(TIME, answered).await {
            Ok(answered) => answered?,
            Err(_) => return Err(SinkError::Away("it did not answer in time".to_owned())),
        };
        match status {
            status if status.is_success() => Ok(()),
            // Of these a repeat would be answered alike. A wrong address or token may be put right meanwhile.
            StatusCode::BAD_REQUEST
            | StatusCode::PAYLOAD_TOO_LARGE
            | StatusCode::UNSUPPORTED_MEDIA_TYPE
            | StatusCode::UNPROCESSABLE_ENTITY => Err(SinkError::Refused(format!("it answered {status}"))),
            _ => Err(SinkError::Away(format!("it answered {status}"))),
        }
    }
}
