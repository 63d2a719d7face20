"""An external processor for Envoy's `ext_proc` filter: gets headers and bodies and gives them back as they are.

Full duplex: each piece of a body is answered with a piece. Only the messages' fields that this needs are declared.
"""

from collections.abc import Iterator
from concurrent import futures
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_SERVICE = "envoy.service.ext_proc.v3.ExternalProcessor"
# Message → field → (number, type); a type that is no scalar is another message.
_MESSAGES: dict[str, dict[str, tuple[int, str]]] = {
    "HttpHeaders": {"end_of_stream": (3, "bool")},
    "HttpBody": {"body": (1, "bytes"), "end_of_stream": (2, "bool")},
    "HttpTrailers": {},
    "ProcessingRequest": {
        "request_headers": (2, "HttpHeaders"),
        "response_headers": (3, "HttpHeaders"),
        "request_body": (4, "HttpBody"),
        "response_body": (5, "HttpBody"),
        "request_trailers": (6, "HttpTrailers"),
        "response_trailers": (7, "HttpTrailers"),
    },
    "StreamedBodyResponse": {"body": (1, "bytes"), "end_of_stream": (2, "bool")},
    "BodyMutation": {"streamed_response": (3, "StreamedBodyResponse")},
    "CommonResponse": {"body_mutation": (3, "BodyMutation")},
    "HeadersResponse": {"response": (1, "CommonResponse")},
    "BodyResponse": {"response": (1, "CommonResponse")},
    "TrailersResponse": {},
    "ProcessingResponse": {
        "request_headers": (1, "HeadersResponse"),
        "response_headers": (2, "HeadersResponse"),
        "request_body": (3, "BodyResponse"),
        "response_body": (4, "BodyResponse"),
        "request_trailers": (5, "TrailersResponse"),
        "response_trailers": (6, "TrailersResponse"),
    },
}
_SCALARS = {
    "bool": descriptor_pb2.FieldDescriptorProto.TYPE_BOOL,
    "bytes": descriptor_pb2.FieldDescriptorProto.TYPE_BYTES,
}


def _message_types() -> dict[str, Any]:
    package = "ext_proc_of_the_tests"
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            declared = message.field.add(
                name=field, number=number, label=descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL
            )
            if kind in _SCALARS:
                declared.type = _SCALARS[kind]
            else:
                declared.type = descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE
                declared.type_name = f".{package}.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}")) for name in _MESSAGES
    }


_TYPES = _message_types()


class ExtProc:
    """Counts the pieces of request bodies that it was shown."""

    def __init__(self) -> None:
        self.request_pieces: list[bytes] = []
        self._server = grpc.server(futures.ThreadPoolExecutor(max_workers=8))
        handler = grpc.stream_stream_rpc_method_handler(
            self._process,
            request_deserializer=_TYPES["ProcessingRequest"].FromString,
            response_serializer=_TYPES["ProcessingResponse"].SerializeToString,
        )
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, {"Process": handler}),))
        self.port = self._server.add_insecure_port("127.0.0.1:0")
        self._server.start()

    def stop(self) -> None:
        self._server.stop(None).wait()

    def _process(self, requests: Iterator[Any], _: grpc.ServicerContext) -> Iterator[Any]:
        for request in requests:
            response = _TYPES["ProcessingResponse"]()
            for name in _MESSAGES["ProcessingRequest"]:
                if not request.HasField(name):
                    continue
                answer = getattr(response, name)
                answer.SetInParent()
                if name.endswith("_body"):
                    piece = getattr(request, name)
                    if name == "request_body":
                        self.request_pieces.append(piece.body)
                    streamed = answer.response.body_mutation.streamed_response
                    streamed.body, streamed.end_of_stream = piece.body, piece.end_of_stream
                    streamed.SetInParent()
            yield response
