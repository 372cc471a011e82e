// The reference at /reference/: Swagger UI with our own openapi.json. It stores nothing, uses
// no validator, and calls only this service.
"use strict";

(async () => {
  const base = new URL("..", location.href).href.replace(/\/$/, "");
  const spec = await (await fetch(base + "/openapi.json", { cache: "no-cache" })).json();
  spec.servers = [{ url: base }];
  // The token is also a parameter, which Swagger UI requires: a second field for it would confuse.
  delete spec.components.securitySchemes;
  for (const { get } of Object.values(spec.paths)) delete get.security;
  SwaggerUIBundle({
    spec,
    dom_id: "#reference",
    validatorUrl: null,
    deepLinking: false, // it would put links into buttons
    persistAuthorization: false,
    tryItOutEnabled: true,
    displayRequestDuration: true,
    defaultModelsExpandDepth: -1,
    requestInterceptor: (request) => Object.assign(request, {
      cache: "no-store", credentials: "omit", redirect: "error", referrerPolicy: "no-referrer",
    }),
  });
})();
