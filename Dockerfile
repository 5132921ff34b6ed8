# Two stages: build with the development packages, run without them.
FROM node:24-slim AS build
WORKDIR /app
RUN apt-get update && apt-get install -y --no-install-recommends python3 make g++ && rm -rf /var/lib/apt/lists/*
COPY package.json package-lock.json ./
RUN npm ci --loglevel=error
COPY . .
RUN npx nest build && npm prune --omit=dev

FROM node:24-slim
WORKDIR /app
ENV NODE_ENV=production
RUN apt-get update && apt-get install -y --no-install-recommends tini && rm -rf /var/lib/apt/lists/*
COPY --from=build /app/package.json ./
COPY --from=build /app/node_modules ./node_modules
COPY --from=build /app/dist ./dist
COPY --from=build /app/proto ./proto
# A volume takes over the owner of the folder it is mounted on; without this one it would be root's.
RUN install -d -o node -g node -m 0700 /var/lib/llmgw /var/lib/llmgw-agent
USER node
# As process 1 Node reaps no orphans; the agent does so by itself, what is started by `docker exec` or a health check has nobody
# else. -s: harmless below another init (`init: true`, `--init`).
ENTRYPOINT ["/usr/bin/tini", "-s", "--", "node", "dist/main.js"]
